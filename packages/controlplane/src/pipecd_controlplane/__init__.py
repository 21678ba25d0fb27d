# SPDX-License-Identifier: Apache-2.0
"""The control plane: the source of truth for every deployment."""
