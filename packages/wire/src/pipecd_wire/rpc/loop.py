# SPDX-License-Identifier: Apache-2.0
"""grpc.aio works with one event loop per process (grpc/grpc#25364); a second one is refused."""

import asyncio
import weakref

from pipecd_wire.rpc.arenas import share_one_heap

_claimed: "weakref.ref[asyncio.AbstractEventLoop] | None" = None


class SecondLoopError(RuntimeError):
    """gRPC is already used by another running event loop of this process."""


def claim_loop() -> None:
    """Binds gRPC to the running loop. Raises SecondLoopError while another open loop uses it."""
    global _claimed  # noqa: PLW0603 - the limit is the process's, so is the record
    running = asyncio.get_running_loop()
    other = _claimed() if _claimed else None
    if other is not None and other is not running and not other.is_closed():
        raise SecondLoopError("gRPC is already used by another event loop of this process")
    if _claimed is None:
        share_one_heap()  # gRPC's threads start with its first server or channel
    if other is not running:
        _claimed = weakref.ref(running)
