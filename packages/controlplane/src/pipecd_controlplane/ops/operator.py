# SPDX-License-Identifier: Apache-2.0
"""The operator's socket in the data folder; only the user who owns the folder can connect.

One process owns the database, so that process makes a backup of all of it. A backup holds every
project: no API key is enough for it, but the folder's user can read everything already. A request
is one line of JSON, and so is the response.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pipecd_controlplane.store.backup import Backup
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.open import SqliteFolder, backup_database
from pipecd_model.errors import PipecdError, StateError
from pipecd_runtime.logs import logger

log = logger(__name__)

SOCKET: Final = "operator.sock"
LONGEST: Final = 16 * 1024
"""The most bytes of a line."""
ASK_SECONDS: Final = 5.0


@asynccontextmanager
async def serving_operator(folder: Path, now: Now) -> AsyncIterator[None]:
    """Serves the operator's socket while the block runs."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            said = await _answer_request(reader, folder, now)
            writer.write(json.dumps(said).encode() + b"\n")
            await writer.drain()
        writer.close()

    path = folder / SOCKET
    with _short(folder) as short, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            path.unlink(missing_ok=True)  # what a killed predecessor left
            listener.bind(f"{short}/{SOCKET}")
            path.chmod(0o600)
        except OSError as error:
            # Everything else works without it: on a disk that takes no sockets, for example.
            log.warning("operator.no_socket", file=str(path), error=str(error))
            yield
            return
        async with await asyncio.start_unix_server(answer, sock=listener, limit=LONGEST):
            try:
                yield
            finally:
                path.unlink(missing_ok=True)


async def _answer_request(reader: asyncio.StreamReader, folder: Path, now: Now) -> dict[str, Any]:
    try:
        async with asyncio.timeout(ASK_SECONDS):
            asked = json.loads(await reader.readline())
        target = Path(asked["backup"])
    except (TimeoutError, ValueError, KeyError, TypeError, asyncio.LimitOverrunError):
        return {"error": "that is nothing to ask for", "hint": ""}
    try:
        made = await asyncio.to_thread(
            backup_database, SqliteFolder(folder=folder), target, now=now()
        )
    except PipecdError as error:
        return {"error": str(error), "hint": error.hint}
    log.info("operator.backup", file=str(target), size=made.size)
    return asdict(made)


def ask_for_backup(folder: Path, target: Path) -> Backup | None:
    """Asks the server of the folder to write a backup; returns None when no server runs there.

    Raises StateError when the backup fails.
    """
    with _short(folder) as short, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(f"{short}/{SOCKET}")
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        asking.sendall(json.dumps({"backup": str(target)}).encode() + b"\n")
        with asking.makefile("rb") as answers:
            line = answers.readline(LONGEST)
    if not line:
        raise StateError("the server stopped before the backup was written", hint="try again")
    said = json.loads(line)
    if "error" in said:
        raise StateError(said["error"], hint=said["hint"])
    return Backup(**said)


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yields a path of the folder that is short enough for the address of a unix socket."""
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StateError(f"cannot open the folder {str(folder)!r}: {error.strerror}") from error
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
