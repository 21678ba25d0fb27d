# SPDX-License-Identifier: Apache-2.0
"""Servers that plugins come from, and a plugin to give out."""

import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[5] / "tests" / "support"))

from oci_registry import OciRegistry
from web_server import WebServer

from pipecd_model.config import PluginConfig
from piped.plugins.download import DownloadLimits
from piped.plugins.fetch import Program, fetch

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
def get(folder: Path) -> Callable[..., Awaitable[Program]]:
    """Fetch the plugin `p` with these settings."""

    def getting(
        url: str, *, limits: dict[str, Any] | None = None, ask: bool = True, **settings: Any
    ) -> Awaitable[Program]:
        plugin = PluginConfig(name="p", url=url, port=7001, **settings)
        return fetch(plugin, folder, ask=ask, limits=DownloadLimits(**(limits or {})))

    return getting
