# SPDX-License-Identifier: Apache-2.0
"""The programs of a cluster that are built with Go, from the modules beside the tests.

Each is built once for each content of its module's files; later runs find it in the cache.
"""

import asyncio
import hashlib
import os
import platform
import re
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipecd_runtime import process
from pipecd_test_support.kubernetes.cache import find_entry, make_entry
from pipecd_test_support.kubernetes.packages import FetchError, Say, prepare_go

MODULES: Final = Path(__file__).parents[4] / "kubernetes"
FLAGS: Final = ("-buildvcs=false", "-trimpath")
PROGRESS_SECONDS: Final = 15.0


class BuildError(Exception):
    """A program cannot be built; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoProgram:
    """A program that a Go module of ours builds."""

    name: str
    folder: Path
    package: str
    version_of: str
    """The module whose version names the program in the cache."""

    @property
    def entry(self) -> str:
        """Return the name of what is kept of it in the cache."""
        content = hashlib.sha256(" ".join(self.flags).encode())
        for path in sorted(self.folder.iterdir()):
            content.update(path.read_bytes())
        return f"{self.name}-{self.version}-{platform.machine()}-{content.hexdigest()[:12]}"

    @property
    def version(self) -> str:
        given = re.search(rf"{self.version_of} v(\S+)", (self.folder / "go.mod").read_text())
        assert given is not None, f"{self.folder / 'go.mod'} does not require {self.version_of}"
        return given[1]

    @property
    def flags(self) -> list[str]:
        """Return the flags of its build; the API server tells the version that they set."""
        named = f"-X k8s.io/component-base/version.gitVersion=v{self.version}"
        return [*FLAGS, f"-ldflags=-s -w {named}"]


CONTROL_PLANE: Final = GoProgram(
    name="kubernetes",
    folder=MODULES / "server",
    package=".",
    version_of="k8s.io/kubernetes",
)
"""etcd, API server, controller manager and scheduler: the first argument says which."""
KWOK: Final = GoProgram(
    name="kwok",
    folder=MODULES / "kwok",
    package="sigs.k8s.io/kwok/cmd/kwok",
    version_of="sigs.k8s.io/kwok",
)
"""Plays the nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executables:
    """Where the built programs are."""

    control_plane: Path
    kwok: Path


def find_executables() -> Executables:
    """Return the built programs. Raises MissingError when they are not there."""
    return Executables(
        control_plane=find_entry(CONTROL_PLANE.entry) / CONTROL_PLANE.name,
        kwok=find_entry(KWOK.entry) / KWOK.name,
    )


def prepare_executables(*, say: Say, limit_minutes: float) -> None:
    """Build the programs that are missing. Raises BuildError or FetchError."""
    over = time.monotonic() + limit_minutes * 60
    for program in (CONTROL_PLANE, KWOK):

        def build(folder: Path, program: GoProgram = program) -> None:
            asyncio.run(_build(program, folder, say=say, over=over))

        make_entry(program.entry, build, say=say)


async def _build(program: GoProgram, folder: Path, *, say: Say, over: float) -> None:
    go = _find_go(say)
    compiler = _Compiler(go=go, program=program, say=say)
    try:
        async with asyncio.timeout(over - time.monotonic()):
            await compiler.build(folder / program.name)
    except TimeoutError:
        raise BuildError(
            f"{program.name} was not built in time; what is done is kept, so run it again"
        ) from None


def _find_go(say: Say) -> Path:
    found = shutil.which("go")
    if found:
        return Path(found)
    try:
        return prepare_go(say=say)
    except FetchError as error:
        raise BuildError(f"Go is not installed, and {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiler:
    go: Path
    program: GoProgram
    say: Say

    async def build(self, target: Path) -> None:
        """Fetch the modules and build the program, and tell how far it is."""
        name, package = self.program.name, self.program.package
        self.say(f"{name}: fetching its modules")
        listed = await self._run(["list", "-deps", package])
        total = len(listed.split())
        self.say(f"{name}: building {total} packages of Go; this takes minutes, once")
        await self._run(
            ["build", "-v", *self.program.flags, "-o", str(target), package], total=total
        )

    async def _run(self, words: Sequence[str], *, total: int = 0) -> str:
        running = await process.start(
            [process.word(self.go), *process.vouch_for(words)],
            env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"},
            cwd=self.program.folder,
            stdout=process.PIPE,
            stderr=process.PIPE,
        )
        lines: list[str] = []
        try:
            assert running.stdout is not None
            following = self._follow(running, lines, total)
            output, _ = await asyncio.gather(running.stdout.read(), following)
            code = await running.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            await running.wait()
        if code:
            told = [line for line in lines if " " in line][-3:] or ["it says nothing"]
            raise BuildError(f"`go {words[0]}` of {self.program.name} failed: {' / '.join(told)}")
        return output.decode()

    async def _follow(self, running: process.Process, lines: list[str], total: int) -> None:
        """Keep what Go says: a build names each package before it builds it."""
        assert running.stderr is not None
        begun = told = time.monotonic()
        built = 0
        async for line in running.stderr:
            lines.append(line.decode(errors="replace").strip())
            built += " " not in lines[-1]
            now = time.monotonic()
            if total and now - told >= PROGRESS_SECONDS:
                told = now
                self.say(
                    f"{self.program.name}: {built} of at most {total} packages, {now - begun:.0f} s"
                )
