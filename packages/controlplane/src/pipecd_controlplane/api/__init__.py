# SPDX-License-Identifier: Apache-2.0
"""The gRPC services: thin handlers that call the use cases. One folder per kind of caller."""
