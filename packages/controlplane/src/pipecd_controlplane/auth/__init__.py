# SPDX-License-Identifier: Apache-2.0
"""Authenticates and authorizes the callers of the control plane."""
