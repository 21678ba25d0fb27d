# SPDX-License-Identifier: Apache-2.0
"""Getting a plugin's executable."""

import hashlib
import os
from pathlib import Path

import pytest

from pipecd_piped.programs.errors import ProgramError
from pipecd_piped.programs.fetch import fetch
from pipecd_piped.programs.source import ProgramSource

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


def install(site: Path, distribution: str, *, plugin: str, command: str) -> None:
    """Puts the metadata of an installed distribution with one plugin into a folder."""
    about = site / f"{distribution}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        f"[console_scripts]\n{command} = theirs.plugin:main\n"
        f"[pipecd.plugins]\n{plugin} = theirs.plugin:main\n"
    )


async def test_an_installed_plugin_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of distributions and commands are their authors' to choose."""
    install(tmp_path / "site", "acme_tools", plugin="ship", command="acme-ship")
    command = tmp_path / "bin" / "acme-ship"
    command.parent.mkdir()
    command.write_bytes(PROGRAM)
    command.chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PATH", str(command.parent))

    got = await fetch(ProgramSource(name="ship", url=""), tmp_path / "plugins")

    assert (got.path, got.url, got.is_package) == (command, "package://ship", True)


async def test_two_installed_plugins_of_one_name_are_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of them runs must not depend on the order of folders."""
    install(tmp_path / "site", "acme_tools", plugin="ship", command="acme-ship")
    install(tmp_path / "site", "other_tools", plugin="ship", command="other-ship")
    monkeypatch.syspath_prepend(tmp_path / "site")

    with pytest.raises(ProgramError, match="acme_tools, other_tools") as raised:
        await fetch(ProgramSource(name="ship", url=""), tmp_path / "plugins")

    assert "uninstall" in raised.value.hint


async def test_a_plugin_that_is_not_installed_is_told_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="no executable 'pipecd-plugin-wiat'") as raised:
        await fetch(ProgramSource(name="w", url="package://wiat"), tmp_path / "plugins")

    installed = raised.value.hint.partition("installed here: ")[2].partition(";")[0].split(", ")
    assert {"dummy", "files", "kubernetes_multicluster", "wait"} <= set(installed)
    assert installed == sorted(installed)


@pytest.mark.parametrize(
    ("kind", "label"), [("plugin", "plugin 'p'"), ("launcher", "launcher 'p'")]
)
async def test_an_error_says_what_kind_of_program_it_is(
    program: Path, tmp_path: Path, kind: str, label: str
) -> None:
    source = ProgramSource(name="p", url=str(program), sha256="0" * 64, kind=kind)

    with pytest.raises(ProgramError, match=f"the file of the {label} has the sha256"):
        await fetch(source, tmp_path / "programs")
