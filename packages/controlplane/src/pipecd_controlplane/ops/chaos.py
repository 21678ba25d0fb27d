# SPDX-License-Identifier: Apache-2.0
"""Kills the server on demand, for tests of a lost response. Off unless a variable turns it on.

An observer is called when the handler of a call has ended: its writes are on disk, and no response
has been sent.
"""

import os
import signal
from pathlib import Path

from pipecd_wire.rpc import Method, Observe


def die_after_commit(path: str) -> Observe:
    """Returns an observer that kills this process when a call of this RPC has succeeded.

    `path` is such as `/pipecd.push.v1.PushService/ReportPlugins`.
    """

    def observe(method: Method, status: str, _seconds: float) -> None:
        if method.path == path and status == "OK":
            os.kill(os.getpid(), signal.SIGKILL)

    return observe


def die_when_armed(folder: str) -> Observe:
    """Returns an observer that does so when the folder holds a file with the name of the RPC.

    The file is renamed first, so that each kills one process.
    """

    def observe(method: Method, status: str, _seconds: float) -> None:
        if status != "OK":
            return
        armed = Path(folder, f"control plane.{method.path.rpartition('/')[2]}")
        try:
            armed.rename(f"{armed}.reached")
        except FileNotFoundError:
            return  # it is not armed, or another server took it first
        os.kill(os.getpid(), signal.SIGKILL)

    return observe
