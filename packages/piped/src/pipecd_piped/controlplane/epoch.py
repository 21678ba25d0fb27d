# SPDX-License-Identifier: Apache-2.0
"""The epoch of the lease that a report belongs to, wherever and whenever it is sent.

Reports of a deployment's run carry the epoch in which the run began, and the backlog that a piped
has left on disk the epoch in which its data folder last held the lease: the control plane refuses
both when another instance has held the lease since.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from pipecd_runtime.files import write_atomically
from pipecd_runtime.logs import logger

log = logger(__name__)

_CURRENT: Final[ContextVar[int | None]] = ContextVar("lease epoch", default=None)


@contextmanager
def lease_epoch(epoch: int | None) -> Iterator[None]:
    """Send all calls of the block with this epoch; None: with that of the lease."""
    before = _CURRENT.set(epoch)
    try:
        yield
    finally:
        _CURRENT.reset(before)


def current_lease_epoch() -> int | None:
    """Returns the epoch of the enclosing `lease_epoch` block, None outside of any."""
    return _CURRENT.get()


def read_epoch(file: Path) -> int:
    """Returns the epoch in the file, 0 when there is none."""
    try:
        text = file.read_text(encoding="ascii").strip()
        return int(text) if text.isdigit() else 0
    except (OSError, ValueError):
        return 0


def write_epoch(file: Path, epoch: int) -> None:
    """Write the epoch atomically; a failing disk is logged and raises nothing."""
    try:
        write_atomically(file, f"{epoch}\n".encode())
    except OSError as error:
        log.warning("lease.not_saved", file=str(file), reason=error.strerror)
