# SPDX-License-Identifier: Apache-2.0
"""A plugin never outlives its piped: the kernel ends it when its parent is gone."""

import ctypes
import os
import signal
import sys
from typing import Final

from pipecd_wire.headers import PARENT_VARIABLE

PR_SET_PDEATHSIG: Final = 1


class OrphanedError(RuntimeError):
    """The parent died before the kernel could be asked."""


def die_with_parent() -> None:
    """Ask for SIGKILL at the parent's death. Elsewhere than on Linux there is no such thing.

    Our piped says its pid: a parent that died while Python was starting cannot be compared with.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = int(os.environ.pop(PARENT_VARIABLE, "") or os.getppid())
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        raise OrphanedError("piped ended while this plugin was starting")
