# SPDX-License-Identifier: Apache-2.0
"""Bring a plugin's files to an OCI registry, where agents get them from."""
