# SPDX-License-Identifier: Apache-2.0
"""The gRPC faces, thin: load, decide, keep, answer. One folder per kind of caller."""
