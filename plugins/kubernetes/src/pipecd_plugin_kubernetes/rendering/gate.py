# SPDX-License-Identifier: Apache-2.0
"""The only way to the network for programs that render what a branch brings.

A proxy on the loopback interface, for one rendering: it lets connections through to allowed hosts
and refuses all others. So what is fetched cannot name hosts that nobody has looked at, as a base
of a base does. Where the operator has a proxy, what is let through goes there.
"""

import asyncio
import base64
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from pipecd_plugin_kubernetes.rendering.programs import RenderError, run_program
from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.hosts import Hosts
from pipecd_sdk.kit.process import Argument

_LARGEST_HEAD: Final = 64 * 1024
_CHUNK: Final = 64 * 1024
_SECONDS: Final = 30.0
_DROPPED: Final = ("connection:", "proxy-connection:", "proxy-authorization:")
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _BadRequestError(Exception):
    """What came is no request that a proxy gets."""


class Gate:
    """Lets programs through to allowed hosts while it is open.

    Example:
        async with Gate(hosts) as gate:
            await run_program(arguments, "kustomize", cwd=folder, env=env | gate.environment)
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.refused: list[str] = []
        """Why connections were refused, in sentences."""

    async def __aenter__(self) -> "Gate":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LARGEST_HEAD)
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        assert self._server is not None, "it was opened"  # noqa: S101
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    @property
    def environment(self) -> dict[str, str]:
        """Returns the variables by which programs find the gate, and nothing else."""
        assert self._server is not None, "it was opened"  # noqa: S101
        address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        return {
            **{name: address for each in names for name in (each, each.lower())},
            "NO_PROXY": "",
            "no_proxy": "",
        }

    def check(self) -> None:
        """Raises StageFailedError when something was refused."""
        if self.refused:
            raise StageFailedError(self.refused[0])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "it runs in one"  # noqa: S101
        self._open.add(task)
        try:
            await self._pass_on(reader, writer)
        except StageFailedError as error:
            self.refused.append(error.reason())
            await _answer(writer, "403 Forbidden")
        except (_BadRequestError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await _answer(writer, "400 Bad Request")
        except (OSError, TimeoutError):
            await _answer(writer, "502 Bad Gateway")
        except asyncio.CancelledError:
            pass  # the gate closes; nobody waits for this connection
        finally:
            self._open.discard(task)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *fields = head.removesuffix("\r\n\r\n").split("\r\n")
        method, target, version = _split(first)
        is_tunnel = method == "CONNECT"
        parts = urlsplit(f"//{target}" if is_tunnel else target)
        host = (parts.hostname or "").rstrip(".").lower()
        if not host or (not is_tunnel and parts.scheme != "http"):
            raise _BadRequestError
        port = parts.port or (443 if is_tunnel else 80)
        found = await self._hosts.check_host(host, "what is rendered fetches something")
        address = str(found[0]) if found else host
        proxy = _find_proxy(host, "https" if is_tunnel else "http")
        async with asyncio.timeout(_SECONDS):
            streams = await (_reach(proxy) if proxy else asyncio.open_connection(address, port))
            if is_tunnel and proxy:
                await _ask_tunnel(streams, host, port, proxy)
        if is_tunnel:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = target if proxy else target.partition("//")[2].partition("/")[2]
            kept = [each for each in fields if not each.lower().startswith(_DROPPED)]
            line = f"{method} {path if proxy else f'/{path}'} {version}"
            lines = [line, *kept, *(_authorize(proxy) if proxy else ()), "Connection: close"]
            streams[1].write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        await _join((reader, writer), streams)


async def run_gated(
    arguments: Sequence[Argument],
    what: str,
    cwd: Path,
    env: Mapping[str, str],
    hosts: Hosts,
) -> str:
    """Returns what a program prints that may only reach allowed hosts. Raises StageFailedError."""
    async with Gate(hosts) as gate:
        try:
            return await run_program(arguments, what, cwd=cwd, env={**env, **gate.environment})
        except RenderError:
            gate.check()  # it knows better why the program failed
            raise


def _split(line: str) -> tuple[str, str, str]:
    parts = line.split(" ")
    if len(parts) != 3:
        raise _BadRequestError
    return parts[0], parts[1], parts[2]


def _find_proxy(host: str, scheme: str) -> str:
    """Returns the operator's own proxy for a host; empty when there is none."""
    return "" if proxy_bypass(host) else getproxies().get(scheme, "")


async def _reach(proxy: str) -> _Streams:
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    is_secure = parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    return await asyncio.open_connection(parts.hostname, port, ssl=is_secure or None)


def _authorize(proxy: str) -> list[str]:
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if not parts.username:
        return []
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return [f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}"]


async def _ask_tunnel(streams: _Streams, host: str, port: int, proxy: str) -> None:
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {name} HTTP/1.1", f"Host: {name}", *_authorize(proxy)]
    streams[1].write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    answer = await streams[0].readuntil(b"\r\n\r\n")
    if answer.split(b" ", 2)[1:2] != [b"200"]:
        raise ConnectionRefusedError(answer[:100])


async def _join(one: _Streams, other: _Streams) -> None:
    """Passes bytes both ways until both ends have no more."""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_pump(one[0], other[1]))
            tasks.create_task(_pump(other[0], one[1]))
    finally:
        other[1].close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()


async def _answer(writer: asyncio.StreamWriter, status: str) -> None:
    with contextlib.suppress(OSError):
        head = f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()
