# SPDX-License-Identifier: Apache-2.0
"""Whether a call of a stage has ended because piped is dying.

The connections of a process that was killed are closed a moment before the kernel ends its
children, which on a busy machine is a long one. In between a plugin cannot tell a piped that has
cancelled the stage from one that is gone: but the process of the latter is ending, and it shows.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Final

NOTICE_SECONDS: Final = 0.05
"""Between two looks."""

LONGEST_SECONDS: Final = 30.0
"""How long the end of a process may take; what has not ended by then is stuck."""

EXITING: Final = 0x4
"""The flag of Linux, `PF_EXITING`, of a process that has begun to end."""

FLAGS_FIELD: Final = 6
"""Its place in `/proc/PID/stat`, counted from the state."""


async def wait_death_notice(parent: int = 0, *, limit_seconds: float = LONGEST_SECONDS) -> None:
    """Wait a moment, and as long as the parent is ending: the kernel ends this process with it.

    Returns when the parent lives, so that what has happened is not its death.
    """
    deadline = time.monotonic() + limit_seconds
    await asyncio.sleep(NOTICE_SECONDS)
    while is_ending(parent or os.getppid()) and time.monotonic() < deadline:  # noqa: ASYNC110 - the kernel does it
        await asyncio.sleep(NOTICE_SECONDS)


def is_ending(pid: int) -> bool:
    """Returns whether a process is ending or gone; False where that cannot be seen."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return fields[0] in {"Z", "X"} or bool(int(fields[FLAGS_FIELD]) & EXITING)
