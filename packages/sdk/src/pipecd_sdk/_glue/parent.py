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
    """The parent died before the death signal was set."""


def die_with_parent() -> None:
    """Has the kernel send SIGKILL when the parent dies; does nothing on other systems than Linux.

    Our piped passes its pid in the environment, so that its death while Python was starting is
    noticed. Raises OrphanedError when the parent is gone already.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = int(os.environ.pop(PARENT_VARIABLE, "") or os.getppid())
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        raise OrphanedError("piped ended while this plugin was starting")
