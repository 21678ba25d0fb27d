# SPDX-License-Identifier: Apache-2.0
"""A small file system of its own, for what a program does when it is full or may only be read."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipecd_test_support.postgres import NOBODY, find_open_folder


class NoMountError(Exception):
    """This user cannot mount a file system here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallDisk:
    """A mounted file system."""

    folder: Path

    def make_folder(self, name: str, *, is_for_postgres: bool = False) -> Path:
        """Returns a new folder on it."""
        made = self.folder / name
        made.mkdir(mode=0o700)
        if is_for_postgres:
            os.chown(made, NOBODY, NOBODY)
        return made

    def fill(self) -> None:
        """Take all space that is left."""
        with self._filler.open("wb", buffering=0) as opened, suppress(OSError):
            while True:
                opened.write(b"x" * 4096)

    def empty(self) -> None:
        """Give the space back."""
        self._filler.unlink()

    def set_read_only(self, *, is_read_only: bool) -> None:
        """Let nobody write to it, or again all who may; no file may be open to write."""
        how = "ro" if is_read_only else "rw"
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.folder)], check=True)

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"


@contextmanager
def mounting_small_disk(mebibytes: int) -> Iterator[SmallDisk]:
    """Mounts it while the block runs. Raises NoMountError."""
    folder = Path(tempfile.mkdtemp(prefix="small-disk-", dir=find_open_folder()))
    try:
        command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0755", "tmpfs"]
        if os.getuid() != 0:
            raise NoMountError("only root can mount a file system")
        done = subprocess.run([*command, str(folder)], capture_output=True, check=False)
        if done.returncode:
            raise NoMountError(done.stderr.decode(errors="replace").strip())
        try:
            yield SmallDisk(folder=folder)
        finally:
            subprocess.run(["umount", str(folder)], check=True)
    finally:
        folder.rmdir()
