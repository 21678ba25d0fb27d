# SPDX-License-Identifier: Apache-2.0
"""What goes into the one file of a plugin: what it needs, and nothing that others need."""

from pathlib import Path

import pytest

from pipecd_pipectl.pluginfile.closure import BuildError, closure, read_project

PROJECT = """
[project]
name = "hello"
dependencies = ["pipecd-sdk"]
[project.optional-dependencies]
Path_Rules = ["pipecd-sdk[patterns]"]
[project.scripts]
hello = "hello:main"
"""


def names(*requirements: str) -> set[str]:
    return {each.name.lower() for each in closure(requirements)}


def test_a_plugin_brings_the_sdk_and_what_that_needs() -> None:
    found = names("pipecd-sdk")

    assert found >= {"pipecd-sdk", "pipecd-model", "grpcio", "protobuf", "msgspec", "pyyaml"}
    assert not found & {"google-re2", "cryptography", "httpx2", "click"}


def test_an_extra_that_a_plugin_names_is_brought_along() -> None:
    assert names("pipecd-sdk[patterns]") == names("pipecd-sdk") | {"google-re2"}


def test_an_extra_counts_wherever_it_is_named() -> None:
    """The model is found twice, the second time with an extra."""
    assert "google-re2" in names("pipecd-model[regex]", "pipecd-model", "pipecd-sdk")


def test_an_extra_of_the_plugin_itself_is_brought_along_when_it_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)

    assert "google-re2" not in names(*read_project(tmp_path).requirements)
    assert "google-re2" in names(*read_project(tmp_path, ["path-rules"]).requirements)


def test_an_extra_that_the_plugin_does_not_have_is_told(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)

    with pytest.raises(BuildError, match="there is no extra 'wings'; it has path-rules"):
        read_project(tmp_path, ["wings"])
