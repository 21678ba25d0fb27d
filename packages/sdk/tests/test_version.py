# SPDX-License-Identifier: Apache-2.0
"""A plugin's version is written once, in its distribution."""

from pathlib import Path

import pytest

from pipecd_sdk import StagePlugin
from pipecd_sdk._version import UnknownVersionError, find_package, find_version


class Nothing(StagePlugin):
    """Its module is none of a distribution."""


def test_the_version_is_that_of_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipecd_plugin_homemade-1.2.3.dist-info").mkdir()
    (tmp_path / "pipecd_plugin_homemade_more-9.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    assert find_version("pipecd_plugin_homemade") == "1.2.3"


def test_a_plugin_without_a_distribution_is_told_to_give_its_version() -> None:
    with pytest.raises(UnknownVersionError, match="give the version to `serve`"):
        find_version("pipecd_plugin_nowhere")


def test_the_package_of_a_plugin_is_that_of_its_class() -> None:
    assert find_package(Nothing()) == Nothing.__module__.partition(".")[0]
