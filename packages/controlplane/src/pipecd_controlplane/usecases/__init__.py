# SPDX-License-Identifier: Apache-2.0
"""The use cases of the control plane, by entity. No module here depends on gRPC."""
