# SPDX-License-Identifier: Apache-2.0
"""The operator's socket in the data folder; only the user who owns the folder can connect.

One process owns the database, so that process makes a backup of all of it. A backup holds every
project: no API key is enough for it, but the folder's user can read everything already. The same
user gets links that sign a browser in. A request is one line of JSON, and so is the response.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pipecd_controlplane.store.backup import Backup
from pipecd_controlplane.store.blobs.config import BlobConfig
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.open import DatabaseConfig, backup_database
from pipecd_model.errors import PipecdError, StateError
from pipecd_runtime.logs import logger

log = logger(__name__)

SOCKET: Final = "operator.sock"
LONGEST: Final = 16 * 1024
"""The most bytes of a line."""
ASK_SECONDS: Final = 5.0
SIGN_IN_LINK: Final = "sign_in_link"
"""The request for a link; its value is the project, or empty."""


AnswerOperator = Callable[[str], Awaitable[dict[str, Any]]]
"""Answers one kind of request, given its value. Raises PipecdError."""


@asynccontextmanager
async def serving_operator(
    folder: Path,
    database: DatabaseConfig,
    blobs: BlobConfig,
    now: Now,
    more: Mapping[str, AnswerOperator] | None = None,
) -> AsyncIterator[None]:
    """Serves the operator's socket while the block runs; `more` are requests beside backups."""

    async def make_backup(target: str) -> dict[str, Any]:
        made = await asyncio.to_thread(backup_database, database, blobs, Path(target), now=now())
        log.info("operator.backup", file=str(target), size=made.size)
        return asdict(made)

    answers: dict[str, AnswerOperator] = {"backup": make_backup, **(more or {})}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            said = await _answer_request(reader, answers)
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


async def _answer_request(
    reader: asyncio.StreamReader, answers: Mapping[str, AnswerOperator]
) -> dict[str, Any]:
    try:
        async with asyncio.timeout(ASK_SECONDS):
            ((kind, value),) = json.loads(await reader.readline()).items()
        answer, text = answers[kind], os.fspath(value)
    except (
        TimeoutError,
        AttributeError,
        ValueError,
        KeyError,
        TypeError,
        asyncio.LimitOverrunError,
    ):
        return {"error": "that is nothing to ask for", "hint": ""}
    try:
        return await answer(text)
    except PipecdError as error:
        return {"error": str(error), "hint": error.hint}


def ask_for_backup(folder: Path, target: Path) -> Backup | None:
    """Asks the server of the folder to write a backup; returns None when no server runs there.

    Raises StateError when the backup fails.
    """
    said = _ask(folder, "backup", str(target))
    return None if said is None else Backup(**said)


def ask_for_link(folder: Path, project_id: str) -> str:
    """Asks the server of the folder for a link that signs a browser in, once.

    Raises StateError when no server runs there, or it refuses.
    """
    said = _ask(folder, SIGN_IN_LINK, project_id)
    if said is None:
        raise StateError(f"no server runs in the folder {str(folder)!r}", hint="start it first")
    return str(said["url"])


def _ask(folder: Path, kind: str, value: str) -> dict[str, Any] | None:
    with _short(folder) as short, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(f"{short}/{SOCKET}")
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        asking.sendall(json.dumps({kind: value}).encode() + b"\n")
        with asking.makefile("rb") as answers:
            line = answers.readline(LONGEST)
    if not line:
        raise StateError("the server stopped before it answered", hint="try again")
    said: dict[str, Any] = json.loads(line)
    if "error" in said:
        raise StateError(said["error"], hint=said["hint"])
    return said


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
