# SPDX-License-Identifier: Apache-2.0
"""RPCs of any stub, for tests that call many of them, and calls that must be refused."""

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from pipecd_wire.rpc import CallError, call

if TYPE_CHECKING:
    UnaryMethod = grpc.aio.UnaryUnaryMultiCallable[Any, Any]
    StreamMethod = grpc.aio.UnaryStreamMultiCallable[Any, Any]
else:  # they take no parameters when the program runs
    UnaryMethod = grpc.aio.UnaryUnaryMultiCallable
    StreamMethod = grpc.aio.UnaryStreamMultiCallable


async def call_refused(method: UnaryMethod, request: Any) -> CallError:
    """Returns the error of a call that must be refused."""
    with pytest.raises(CallError) as caught:
        await call(method, request)
    return caught.value
