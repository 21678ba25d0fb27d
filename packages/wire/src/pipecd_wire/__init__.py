# SPDX-License-Identifier: Apache-2.0
"""The wire protocol. All but `rpc/` is generated from `proto/` and never edited."""

import os

# gRPC's fork handlers abort calls when a process that serves also starts others (grpc/grpc#37259).
# The library reads this once, at its first import, so it must be set before any `import grpc`.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# Unset, the library writes lines of its own to stderr whenever a peer closes a connection.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
