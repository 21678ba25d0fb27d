# SPDX-License-Identifier: Apache-2.0
"""Read objects of a mirror through one `git cat-file` that stays alive.

A read costs a line in and a few lines out instead of a process. Paths are followed inside the
commit: a symbolic link that leaves the repository is told, never read.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pipecd_runtime.process import PIPE, Process, own, valued
from piped.git import process as git
from piped.git.errors import DamagedMirrorError, GitError

LARGEST: Final = 16 * 1024 * 1024
"""Bytes. Nothing that we read ourselves comes near it; what is larger is somebody's mistake."""

_LIMIT: Final = 60.0
_LONGEST_NAME: Final = 8 * 1024
_AT_ONCE: Final = 64
"""Requests in flight: few enough that they fit into the pipe while their answers fill the other."""

Verb = Literal["contents", "info"]
Why = Literal["missing", "nowhere", "outside", "loop"]
"""`nowhere`: a link inside the repository to something that is not there."""

# What cat-file says about a path instead of an object, and how many lines of text follow.
_MISSING: Final = frozenset({"missing", "ambiguous"})
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


class Objects:
    """The objects of one repository, by name: a hash, a ref, or `commit:path`."""

    def __init__(self, folder: str, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._env = env
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def contents(self, names: Sequence[str]) -> list[GitObject | Absent]:
        """Read objects, in the order of their names."""
        return await self._ask("contents", names)

    async def info(self, names: Sequence[str]) -> list[GitObject | Absent]:
        """Look up the id and kind of objects, in the order of their names."""
        return await self._ask("info", names)

    async def close(self) -> None:
        """End the process; the next read starts another."""
        process, self._process = self._process, None
        if process is not None:
            await git.end(process)

    async def _ask(self, verb: Verb, names: Sequence[str]) -> list[GitObject | Absent]:
        for name in names:
            if "\n" in name or len(name) > _LONGEST_NAME:
                raise GitError(f"cannot be read because of its name: {name[:100]!r}")
        async with self._turn:
            try:
                return await self._converse(verb, names)
            except (OSError, asyncio.IncompleteReadError):
                # It died, and nothing was lost with it: once more with a new one.
                await self.close()
            try:
                return await self._converse(verb, names)
            except (OSError, asyncio.IncompleteReadError):
                await self.close()
                raise DamagedMirrorError(f"the mirror {self._folder!r} cannot be read") from None

    async def _converse(self, verb: Verb, names: Sequence[str]) -> list[GitObject | Absent]:
        done = False
        found: list[GitObject | Absent] = []
        try:
            async with asyncio.timeout(_LIMIT):
                requests, answers = await self._pipes()
                for start in range(0, len(names), _AT_ONCE):
                    batch = names[start : start + _AT_ONCE]
                    lines = "".join(f"{verb} {name}\n" for name in batch)
                    requests.write(lines.encode(errors="surrogateescape"))
                    await requests.drain()
                    found += [await _answer(answers, verb, name) for name in batch]
            done = True
        except TimeoutError:
            raise GitError(f"git cat-file took longer than {_LIMIT:g}s") from None
        finally:
            if not done:  # what it still has to say belongs to nobody
                await self.close()
        return found

    async def _pipes(self) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await git.start(
                valued("--git-dir=", self._folder),
                *own("cat-file", "--batch-command", "--follow-symlinks"),
                env=self._env,
                stdin=PIPE,
            )
        if process.stdin is None or process.stdout is None:
            raise GitError("git cat-file has no pipes")
        return process.stdin, process.stdout


async def _answer(stream: asyncio.StreamReader, verb: Verb, name: str) -> GitObject | Absent:
    line = (await _line(stream)).decode(errors="surrogateescape")
    if line.rpartition(" ")[2] in _MISSING:
        return Absent(why="missing")
    first, _, rest = line.partition(" ")
    if first in _ABOUT_LINK and rest.isdigit():
        await stream.readexactly(int(rest) + 1)
        return Absent(why=_ABOUT_LINK[first])
    kind, _, size = rest.partition(" ")
    if not size.isdigit():
        raise GitError(f"git cat-file answered {line!r} to {name!r}")
    if verb == "info":
        return GitObject(id=first, kind=kind)
    if int(size) > LARGEST:
        raise GitError(f"{name!r} is too large to be read: {size} bytes")
    data = await stream.readexactly(int(size))
    await stream.readexactly(1)
    return GitObject(id=first, kind=kind, data=data)


async def _line(stream: asyncio.StreamReader) -> bytes:
    return (await stream.readuntil(b"\n"))[:-1]
