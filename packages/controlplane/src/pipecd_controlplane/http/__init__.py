# SPDX-License-Identifier: Apache-2.0
"""What the control plane serves beside gRPC, and the one address that carries everything."""
