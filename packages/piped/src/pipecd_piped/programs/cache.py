# SPDX-License-Identifier: Apache-2.0
"""The cache of a program's executables, each stored under its checksum.

`<folder>/<sha256>/<name>` is an executable, `<folder>/source-<key>.json` records which of them came
from which source. A file is verified before it gets a name under which it could be run, and again
whenever it is taken from the cache. A few versions are kept, so that going back to an earlier one
needs no network.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from pipecd_piped.programs.errors import ProgramError
from pipecd_piped.programs.source import ProgramSource
from pipecd_runtime.files import write_atomically

KEPT_VERSIONS: Final = 3
"""The number of versions that are kept."""

CHUNK: Final = 1024 * 1024
_SCRATCH: Final = ".new-"
_RECORD: Final = "source-"
_SUM: Final = re.compile(r"[0-9a-f]{64}")


class SourceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The executable that a source has delivered last."""

    source: str
    """The address of the source, without credentials."""
    sha256: str
    """The checksum of the executable."""
    version: str = ""
    """The version by the source: an ETag, or digests of layers."""


class Cache:
    """The cached executables of one program, for its supervisor alone. Its methods block."""

    def __init__(self, folder: Path, source: ProgramSource) -> None:
        self._folder = folder / source.name
        self._source = source
        # Another address or another checksum is another source.
        key = f"{source.url}\0{source.sha256.lower()}"
        name = f"{_RECORD}{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
        self._record = self._folder / name

    @contextmanager
    def incoming_file(self) -> Iterator[Path]:
        """Yields a path for an incoming file; what is still there after the block is removed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in self._folder.glob(f"{_SCRATCH}*"):  # left by a piped that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=_SCRATCH) as scratch:
            yield Path(scratch) / self._source.name

    def store(self, file: Path, record: SourceRecord) -> Path:
        """Verify an incoming file and move it to the cache; returns its path there.

        Raises ProgramError when it is no program, or has another checksum than the wanted one.
        """
        self._check_sum(record.sha256)
        _check_program(file, record.source, self._source.kind)
        kept = self._folder / record.sha256 / self._source.name
        kept.parent.mkdir(exist_ok=True)
        file.chmod(0o755)
        file.replace(kept)
        self._write(record)
        self._remove_old_versions(record.sha256)
        return kept

    def find_last(self) -> tuple[SourceRecord, Path] | None:
        """Returns the last executable of the source; None when it is missing or damaged."""
        try:
            record = msgspec.json.decode(self._record.read_bytes(), type=SourceRecord)
        except (OSError, msgspec.DecodeError):
            return None
        kept = self._folder / record.sha256 / self._source.name
        try:
            with kept.open("rb") as file:
                whole = hashlib.file_digest(file, "sha256").hexdigest() == record.sha256
            if not whole:
                shutil.rmtree(kept.parent)
                return None
            os.utime(kept.parent)
        except OSError:
            return None
        return record, kept

    def _write(self, record: SourceRecord) -> None:
        write_atomically(self._record, msgspec.json.encode(record))

    def _remove_old_versions(self, current: str) -> None:
        """Remove the least recently used versions beyond `KEPT_VERSIONS`."""
        versions = [each for each in self._folder.iterdir() if _SUM.fullmatch(each.name)]
        versions = [each for each in versions if each.name != current]
        versions.sort(key=lambda each: each.stat().st_mtime, reverse=True)
        for each in versions[KEPT_VERSIONS - 1 :]:
            shutil.rmtree(each, ignore_errors=True)
        for record in self._folder.glob(f"{_RECORD}*.json"):
            with suppress(OSError, msgspec.DecodeError):
                given = msgspec.json.decode(record.read_bytes(), type=SourceRecord)
                if not (self._folder / given.sha256).is_dir():
                    record.unlink()

    def _check_sum(self, digest: str) -> None:
        wanted = self._source.sha256.lower()
        if wanted and wanted != digest:
            raise ProgramError(
                f"the file of the {self._source.label} has the sha256 {digest}, not {wanted}",
                hint="it was not started; correct the sha256 if the new file is wanted",
            )


def _check_program(file: Path, source: str, kind: str) -> None:
    """Raises ProgramError for a file that the kernel cannot execute.

    The wrapper that starts it would otherwise have a shell run it.
    """
    with file.open("rb") as content:
        if not content.read(4).startswith((b"\x7fELF", b"#!")):
            raise ProgramError(
                f"{source!r} is not a program",
                hint=f"a {kind} is one executable file, or a script that begins with #!",
            )
