# SPDX-License-Identifier: Apache-2.0
"""What the control plane can do, by noun. Nothing here knows gRPC."""
