# SPDX-License-Identifier: Apache-2.0
"""Read objects of a mirror through one long-running `git cat-file` process.

A read costs a few lines in and out instead of a process. Symbolic links are followed inside the
commit; for one that leaves the repository an `Absent` is returned, and it is never read. So it is
for an object that cannot be read; the other objects of the same batch are read all the same.
"""

import asyncio
import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pipecd_piped.git import process as git
from pipecd_piped.git.errors import DamagedMirrorError, GitError
from pipecd_runtime.process import PIPE, Process, join_option, own

LARGEST: Final = 16 * 1024 * 1024
"""Bytes. No file that piped itself reads comes near it; a larger one is there by mistake."""

LONGEST_NAME: Final = 4096 + 80
"""Bytes of a commit and a path: no checkout could hold a longer one."""

_BATCH_SECONDS: Final = 60.0
_SINGLE_SECONDS: Final = 20.0
"""Seconds for a batch of objects, and for one that is asked for alone after its batch failed."""

_AT_ONCE: Final = 64
"""Requests in flight: few enough to fit into one pipe while the responses fill the other."""

_MOST_LOST: Final = 16
"""Objects that git may fail to read before the whole mirror is reported as damaged."""

_CHUNK: Final = 64 * 1024

_MEMORY: Final = {"GIT_ALLOC_LIMIT": "512m"}
"""Limits one allocation of git: it reads the target of a link into memory, and a few kilobytes of a
repository can expand to gigabytes."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

Verb = Literal["contents", "info"]
Why = Literal["missing", "nowhere", "outside", "loop", "too large", "unnameable", "lost"]
"""`nowhere`: a link inside the repository to something that is not there. `lost`: git fails when it
reads the object, because our copy is damaged."""

# What cat-file says about a path instead of an object, and how many lines of text follow.
_MISSING: Final = frozenset({"missing", "ambiguous", "submodule"})
_ABOUT_LINK: Final[dict[str, Why]] = {
    "symlink": "outside",
    "loop": "loop",
    "dangling": "nowhere",
    "notdir": "nowhere",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GitObject:
    """An object; `data` is empty when only its kind was asked for."""

    id: str
    kind: str
    """`blob`, `tree`, `commit` or `tag`."""
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """There is no such object, or it is out of bounds."""

    why: Why
    size: int = 0
    """Bytes, of an object that is too large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """What git says of an object before its contents."""

    id: str
    kind: str
    size: int


class _StrangeAnswerError(Exception):
    """Git's response cannot be parsed, so that the rest of the stream cannot be either."""


_FAILURES: Final = (OSError, asyncio.IncompleteReadError, _StrangeAnswerError, TimeoutError)


class Objects:
    """The objects of one repository, by name: a hash, a ref, or `commit:path`."""

    def __init__(self, folder: str, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._env = {**env, **_MEMORY}
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def contents(
        self, names: Sequence[str], *, largest: int = LARGEST
    ) -> list[GitObject | Absent]:
        """Returns objects in the order of `names`; Absent for those of more than `largest` bytes.

        Raises DamagedMirrorError when git can read none of them, or fails on too many.
        """
        return await self._ask("contents", names, largest)

    async def info(self, names: Sequence[str]) -> list[GitObject | Absent]:
        """Returns the id and kind of objects, in the order of `names`."""
        return await self._ask("info", names, LARGEST)

    async def close(self) -> None:
        """End the process; the next read starts another."""
        process, self._process = self._process, None
        if process is not None:
            await git.end(process)

    async def _ask(
        self, verb: Verb, names: Sequence[str], largest: int
    ) -> list[GitObject | Absent]:
        found: list[GitObject | Absent] = []
        alone, lost = False, 0
        async with self._turn:
            while len(found) < len(names):
                batch = names[len(found) : len(found) + (1 if alone else _AT_ONCE)]
                try:
                    found += await self._converse(verb, batch, largest, alone=alone)
                except _FAILURES:
                    # The process died, hangs, or its response cannot be parsed. It may only have
                    # been killed: retry with a new process, name by name, to find the object that
                    # it fails on.
                    if alone:
                        lost += 1
                        found.append(Absent(why="lost"))
                    alone = True
                if lost > _MOST_LOST or (lost and lost == len(found) == len(names)):
                    raise DamagedMirrorError(f"the mirror {self._folder!r} cannot be read")
        return found

    async def _converse(
        self, verb: Verb, names: Sequence[str], largest: int, *, alone: bool
    ) -> list[GitObject | Absent]:
        done = False
        try:
            async with asyncio.timeout(_SINGLE_SECONDS if alone else _BATCH_SECONDS):
                headers = await self._headers(names)
                if verb == "info":
                    found: list[GitObject | Absent] = [
                        each if isinstance(each, Absent) else GitObject(id=each.id, kind=each.kind)
                        for each in headers
                    ]
                else:
                    found = await self._data(headers, largest)
            done = True
        finally:
            if not done:  # the rest of its output belongs to no later request
                await self.close()
        return found

    async def _headers(self, names: Sequence[str]) -> list[_Header | Absent]:
        requests, answers = await self._pipes()
        askable = [_is_nameable(name) for name in names]
        lines = "".join(
            f"info {name}\n" for name, asked in zip(names, askable, strict=True) if asked
        )
        # Not drained: while we waited for that, git might wait for us to read its responses.
        requests.write(lines.encode(errors="surrogateescape"))
        return [await _header(answers) if asked else Absent(why="unnameable") for asked in askable]

    async def _data(
        self, headers: Sequence[_Header | Absent], largest: int
    ) -> list[GitObject | Absent]:
        """Returns contents by object id: a ref may have moved since the headers were read."""
        requests, answers = await self._pipes()
        for header in headers:
            if isinstance(header, _Header) and header.size <= largest:
                requests.write(f"contents {header.id}\n".encode())
        found: list[GitObject | Absent] = []
        for header in headers:
            if isinstance(header, Absent):
                found.append(header)
            elif header.size > largest:
                found.append(Absent(why="too large", size=header.size))
            else:
                found.append(await _contents(answers, header))
        return found

    async def _pipes(self) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await git.start(
                join_option("--git-dir=", self._folder),
                *own("cat-file", "--batch-command", "--follow-symlinks"),
                env=self._env,
                stdin=PIPE,
            )
        if process.stdin is None or process.stdout is None:
            raise GitError("git cat-file has no pipes")
        return process.stdin, process.stdout


def _is_nameable(name: str) -> bool:
    """Returns whether a name fits into a request, which is one line of limited length."""
    if _CONTROL.search(name):
        return False
    with contextlib.suppress(UnicodeEncodeError):
        return len(name.encode(errors="surrogateescape")) <= LONGEST_NAME
    return False


async def _header(stream: asyncio.StreamReader) -> _Header | Absent:
    line = (await _line(stream)).decode(errors="surrogateescape")
    if line.rpartition(" ")[2] in _MISSING:
        return Absent(why="missing")
    first, _, rest = line.partition(" ")
    if first in _ABOUT_LINK and rest.isdigit():
        await _skip(stream, int(rest) + 1)
        return Absent(why=_ABOUT_LINK[first])
    kind, _, size = rest.partition(" ")
    if not size.isdigit():
        raise _StrangeAnswerError(line)
    return _Header(id=first, kind=kind, size=int(size))


async def _contents(stream: asyncio.StreamReader, header: _Header) -> GitObject:
    again = await _header(stream)
    if again != header:
        raise _StrangeAnswerError(f"{again} is not {header}")
    data = await stream.readexactly(header.size)
    await stream.readexactly(1)
    return GitObject(id=header.id, kind=header.kind, data=data)


async def _skip(stream: asyncio.StreamReader, size: int) -> None:
    """Skip the target of a link, which is not needed here and may be of any length."""
    while size > 0:
        data = await stream.read(min(size, _CHUNK))
        if not data:
            raise asyncio.IncompleteReadError(b"", size)
        size -= len(data)


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return (await stream.readuntil(b"\n"))[:-1]
    except asyncio.LimitOverrunError as error:
        raise _StrangeAnswerError("a line without an end") from error
