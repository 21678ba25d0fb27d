# SPDX-License-Identifier: Apache-2.0
"""Moves everything that a control plane keeps to another database, and to another blob store."""
