# SPDX-License-Identifier: Apache-2.0
"""The client of the control plane, the lease, and a local copy of its state."""
