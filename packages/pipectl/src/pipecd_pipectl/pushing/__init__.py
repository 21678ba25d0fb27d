# SPDX-License-Identifier: Apache-2.0
"""Pushes a plugin's files to an OCI registry, from which pipeds pull them."""
