# SPDX-License-Identifier: Apache-2.0
"""Limits the open calls of one caller, so that it cannot take the places that others need.

Counted per piped, API key and person, over all their connections, open streams included.
"""

from collections import Counter

from pipecd_controlplane.auth import calls
from pipecd_model.errors import PipecdError
from pipecd_wire.rpc import Admit, Metadata, Method


class TooManyCallsError(PipecdError):
    """A caller has as many calls open as it may have."""

    status = "RESOURCE_EXHAUSTED"


class OpenCalls:
    """Counts calls after they are authenticated, until they have ended."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[tuple[str, str]] = Counter()

    def limit_admission(self, admit: Admit) -> Admit:
        """Returns an `Admit` that also raises TooManyCallsError for a call above the limit."""

        async def admit_within_limit(method: Method, metadata: Metadata) -> object:
            caller = await admit(method, metadata)
            if (call := calls.current()) is not None:
                self._enter(call)
            return caller

        return admit_within_limit

    def observe(self, _method: Method, _status: str, _seconds: float) -> None:
        call = calls.current()
        if call is None or not call.is_counted:
            return
        call.is_counted = False
        key = (call.project_id, call.caller)
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]

    def _enter(self, call: calls.CallRecord) -> None:
        key = (call.project_id, call.caller)
        if self._open[key] >= self._most:
            raise TooManyCallsError(
                f"{call.caller} has {self._most} calls open",
                hint="end some, or set spec.limits.maxCallsPerCaller of the control plane",
            )
        self._open[key] += 1
        call.is_counted = True
