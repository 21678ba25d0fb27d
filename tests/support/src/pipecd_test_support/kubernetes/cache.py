# SPDX-License-Identifier: Apache-2.0
"""A folder for what is made once and used by every later run: it is there whole or not at all."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

FAILURE_SUFFIX: Final = ".failed"


class MissingError(Exception):
    """Something is not in the cache; the message says why, and what makes it."""


def cache_folder() -> Path:
    """Return the folder of the tests in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pipecd" / "tests"


def find_entry(name: str) -> Path:
    """Return what was made under this name. Raises MissingError with the reason when it is not."""
    entry = cache_folder() / name
    if entry.is_dir():
        return entry
    reason = "it was not made yet: run `make test-kubernetes`"
    with suppress(OSError):
        reason = entry.with_name(f"{name}{FAILURE_SUFFIX}").read_text().strip() or reason
    raise MissingError(f"{name} is missing: {reason}")


def make_entry(name: str, fill: Callable[[Path], None], *, say: Callable[[str], None]) -> Path:
    """Return the entry of this name; where it is missing, `fill` makes it in an empty folder.

    Of several processes one makes it and the others wait. What `fill` raises is remembered as the
    reason, and raised.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    entry = folder / name
    if entry.is_dir():
        return entry
    failure = entry.with_name(f"{name}{FAILURE_SUFFIX}")
    with _locked(folder / f"{name}.lock", say=lambda: say(f"{name}: another run makes it")):
        if entry.is_dir():
            return entry
        made = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=folder))
        try:
            made.chmod(0o755)
            fill(made)
            made.rename(entry)
        except Exception as error:
            failure.write_text(f"{error}\n")
            raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
        failure.unlink(missing_ok=True)
    return entry


@contextmanager
def _locked(path: Path, *, say: Callable[[], None]) -> Iterator[None]:
    """Hold a lock on a file; the kernel releases it when the process dies."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
