# SPDX-License-Identifier: Apache-2.0
"""Getting a plugin's executable."""

import hashlib
import os
from pathlib import Path

import pytest

from piped.programs.errors import ProgramError
from piped.programs.fetch import fetch
from piped.programs.source import ProgramSource

PROGRAM = b"#!/bin/sh\nexit 0\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "a plugin"
    path.write_bytes(PROGRAM)
    return path


@pytest.mark.parametrize("form", ["path", "url", "relative"])
async def test_a_file_is_copied_under_its_checksum(
    program: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = {"path": str(program), "url": program.as_uri(), "relative": "./a plugin"}[form]
    digest = hashlib.sha256(PROGRAM).hexdigest()

    got = await fetch(ProgramSource(name="p", url=url, sha256=digest.upper()), tmp_path / "plugins")

    assert got.path == tmp_path / "plugins" / "p" / digest / "p"
    assert got.path.read_bytes() == PROGRAM
    assert os.access(got.path, os.X_OK)
    assert got.url == program.as_uri()
    assert not got.is_package


async def test_what_was_refused_leaves_nothing_to_run(program: Path, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="has the sha256"):
        await fetch(
            ProgramSource(name="p", url=str(program), sha256="0" * 64), tmp_path / "plugins"
        )

    assert os.listdir(tmp_path / "plugins" / "p") == []  # noqa: PTH208


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ProgramError, match="cannot copy the plugin's file '/nowhere/plugin': No su"
    ):
        await fetch(ProgramSource(name="p", url="/nowhere/plugin"), tmp_path)


@pytest.mark.parametrize("url", ["ftp://x/p", "file://elsewhere/p"])
async def test_a_source_that_cannot_be_fetched_is_said(tmp_path: Path, url: str) -> None:
    with pytest.raises(ProgramError, match="cannot fetch") as raised:
        await fetch(ProgramSource(name="p", url=url), tmp_path)

    assert raised.value.hint


async def test_a_package_name_cannot_be_a_path(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="there is no executable"):
        await fetch(ProgramSource(name="p", url="package://../../bin/sh"), tmp_path)


@pytest.mark.parametrize(
    ("kind", "label"), [("plugin", "plugin 'p'"), ("launcher", "launcher 'p'")]
)
async def test_an_error_says_what_kind_of_program_it_is(
    program: Path, tmp_path: Path, kind: str, label: str
) -> None:
    source = ProgramSource(name="p", url=str(program), sha256="0" * 64, kind=kind)

    with pytest.raises(ProgramError, match=f"the file of the {label} has the sha256"):
        await fetch(source, tmp_path / "programs")
