# SPDX-License-Identifier: Apache-2.0
"""Runs `pipecd server` as a process of its own."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipecd_test_support.chosen_store import add_store_flags

PROCESS_LIMIT_SECONDS = 60.0
"""How long a process may take to start or to end, on the slowest machine."""


@dataclass
class ServerProcess:
    """A control plane that is a process of its own."""

    process: asyncio.subprocess.Process
    address: str
    lines: list[str]

    async def wait_ended(self) -> int:
        async with asyncio.timeout(PROCESS_LIMIT_SECONDS):
            return await self.process.wait()


class RunServer(Protocol):
    """Runs a server; see `running_server`."""

    def __call__(
        self, folder: Path, *flags: str, env: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[ServerProcess]: ...


@asynccontextmanager
async def running_server(
    folder: Path, *flags: str, env: Mapping[str, str] | None = None
) -> AsyncIterator[ServerProcess]:
    """Run it: `async with running_server(folder, "--flag", env={…}) as server`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from pipecd_controlplane.cli import main; main()",
        "server",
        "--data-dir",
        str(folder),
        "--listen",
        "127.0.0.1:0",
        *add_store_flags(folder, flags),
        env={**os.environ, **(env or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PROCESS_LIMIT_SECONDS):
            lines = [(await process.stdout.readline()).decode().rstrip() for _ in range(3)]
        yield ServerProcess(process, lines[0].rpartition(" ")[2], lines)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
