# SPDX-License-Identifier: Apache-2.0
"""Dying on demand, for tests of what a lost reply does. Nothing of it is built in unless asked for.

An observer hears of a call when its handler has ended: what it wrote is on disk, and nothing has
been answered.
"""

import os
import signal
from pathlib import Path

from pipecd_wire.rpc import Method, Observe


def die_after_commit(path: str) -> Observe:
    """An observer that kills this process when a call of this RPC has succeeded.

    `path` is such as `/pipecd.push.v1.PushService/ReportPlugins`.
    """

    def observe(method: Method, status: str, _seconds: float) -> None:
        if method.path == path and status == "OK":
            os.kill(os.getpid(), signal.SIGKILL)

    return observe


def die_when_armed(folder: str) -> Observe:
    """An observer that does so when the folder holds a file with the name of the RPC.

    The file is taken away first: one death for each.
    """

    def observe(method: Method, status: str, _seconds: float) -> None:
        armed = Path(folder, f"control plane.{method.path.rpartition('/')[2]}")
        if status == "OK" and armed.exists():
            armed.rename(f"{armed}.reached")
            os.kill(os.getpid(), signal.SIGKILL)

    return observe
