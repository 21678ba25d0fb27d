# SPDX-License-Identifier: Apache-2.0
"""Packages of folders: what goes in, and what is refused."""

import io
import os
import zipfile
from pathlib import Path

import pytest
from pipecd_plugin_lambda.provider import package
from pipecd_plugin_lambda.provider.package import make_package

from pipecd_sdk import StageFailedError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A clone with code in `app`, and something of the machine beside the clone."""
    (tmp_path / "secret").write_text("of the machine")
    clone = tmp_path / "clone"
    for name in ("app/index.py", "app/lib/more.py", ".git/config", "shared/a.py"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(name)
    return clone


def read_names(made: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(made)).namelist()


def test_the_same_files_make_the_same_package(root: Path) -> None:
    first = make_package(root, "app")
    os.utime(root / "app/index.py", (1, 1))

    assert make_package(root, "app") == first
    assert read_names(first) == ["app/index.py", "app/lib/more.py"]


def test_the_whole_repository_comes_without_the_files_of_git(root: Path) -> None:
    assert read_names(make_package(root, "")) == ["app/index.py", "app/lib/more.py", "shared/a.py"]


def test_a_link_to_a_file_of_the_repository_is_its_content(root: Path) -> None:
    (root / "app/link.py").symlink_to("../shared/a.py")

    made = zipfile.ZipFile(io.BytesIO(make_package(root, "app")))

    assert made.read("app/link.py") == b"shared/a.py"


@pytest.mark.parametrize("leads", ["../../secret", "/etc/hostname", "nowhere", "../.git/config"])
def test_a_link_that_leads_out_is_refused(root: Path, leads: str) -> None:
    (root / "app/link").symlink_to(leads)

    with pytest.raises(StageFailedError, match=r"app/link"):
        make_package(root, "app")


@pytest.mark.parametrize("leads", ["../shared", "../../", ".."])
def test_a_link_to_a_folder_is_refused_and_not_left_out(root: Path, leads: str) -> None:
    (root / "app/link").symlink_to(leads)

    with pytest.raises(StageFailedError, match=r"app/link.* is a link to a folder"):
        make_package(root, "app")


@pytest.mark.parametrize("path", ["../", "/etc", ".git", "link", "app/index.py", "nowhere"])
def test_a_path_that_is_no_folder_of_the_code_is_refused(root: Path, path: str) -> None:
    (root / "link").symlink_to("..")

    with pytest.raises(StageFailedError, match="not a folder of the repository"):
        make_package(root, path)


def test_too_much_code_is_refused_before_it_is_read(root: Path) -> None:
    with (root / "app/large").open("wb") as file:
        file.truncate(package.LARGEST_CODE + 1)

    with pytest.raises(StageFailedError, match="more than 250 MiB"):
        make_package(root, "app")
