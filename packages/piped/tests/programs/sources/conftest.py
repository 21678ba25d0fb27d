# SPDX-License-Identifier: Apache-2.0
"""Servers that plugins come from, and a plugin to give out."""

import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from pipecd_piped.programs.download import DownloadLimits
from pipecd_piped.programs.fetch import FetchedProgram, fetch
from pipecd_piped.programs.source import ProgramSource
from pipecd_test_support.oci_registry import OciRegistry
from pipecd_test_support.web_server import WebServer

PLUGIN = b"#!/bin/sh\nexit 0\n"


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer() as serving:
        yield serving


@pytest.fixture
def registry() -> Iterator[OciRegistry]:
    with OciRegistry() as serving:
        yield serving


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "plugins"


@pytest.fixture
def executables(folder: Path) -> Callable[[], list[str]]:
    """The content of everything under the folder that anybody could run."""

    def found() -> list[str]:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return [path.read_text() for path in files if path.stat().st_mode & 0o111]

    return found


@pytest.fixture
def get(folder: Path) -> Callable[..., Awaitable[FetchedProgram]]:
    """Fetch the plugin `p` with these settings."""

    def getting(
        url: str, *, limits: dict[str, Any] | None = None, ask: bool = True, **settings: Any
    ) -> Awaitable[FetchedProgram]:
        plugin = ProgramSource(name="p", url=url, **settings)
        return fetch(plugin, folder, ask=ask, limits=DownloadLimits(**(limits or {})))

    return getting


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """What a server with TLS needs, and this process trusts."""
    authority = trustme.CA()
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context
