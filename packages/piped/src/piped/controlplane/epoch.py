# SPDX-License-Identifier: Apache-2.0
"""The epoch of the lease that a report belongs to, wherever and whenever it is sent.

What a deployment's run says is said under the epoch in which the run began, and what a piped has
left on disk under the one in which its data folder was last at work: the control plane refuses both
when another instance has been at work since.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from pipecd_runtime.files import write_atomically
from pipecd_runtime.logs import logger

log = logger(__name__)

_UNDER: Final[ContextVar[int | None]] = ContextVar("lease epoch", default=None)


@contextmanager
def under(epoch: int | None) -> Iterator[None]:
    """Make all calls of the block under this epoch; None: under that of the lease, as outside."""
    before = _UNDER.set(epoch)
    try:
        yield
    finally:
        _UNDER.reset(before)


def chosen_epoch() -> int | None:
    """The epoch of the block that this is called in, None outside of any."""
    return _UNDER.get()


def kept_epoch(file: Path) -> int:
    """The epoch of a data folder, 0 when none was kept."""
    try:
        text = file.read_text(encoding="ascii").strip()
        return int(text) if text.isdigit() else 0
    except (OSError, ValueError):
        return 0


def keep_epoch(file: Path, epoch: int) -> None:
    """Keep it; a disk that takes nothing is told, and no reason to stop."""
    try:
        write_atomically(file, f"{epoch}\n".encode())
    except OSError as error:
        log.warning("lease.not_kept", file=str(file), reason=error.strerror)
