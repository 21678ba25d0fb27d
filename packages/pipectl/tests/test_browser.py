# SPDX-License-Identifier: Apache-2.0
"""The page of a sign-in is opened by the desktop's own program, without pipectl's credentials."""

import time
from pathlib import Path

import pytest

from pipecd_pipectl.browser import open_page

URL = "http://localhost:8080/auth/terminal?project=shop"


def test_the_page_is_given_to_the_desktop_without_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener = tmp_path / "xdg-open"
    opener.write_text(
        f'#!/bin/sh\nenv > {tmp_path}/env\necho "$@" > {tmp_path}/got.new\n'
        f"mv {tmp_path}/got.new {tmp_path}/got\n"
    )
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PIPECTL_API_KEY", "a-secret")
    monkeypatch.setenv("DISPLAY", ":7")

    assert open_page(URL)

    until = time.monotonic() + 30
    while not (tmp_path / "got").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert (tmp_path / "got").read_text().split() == [URL]
    environment = (tmp_path / "env").read_text()
    assert "DISPLAY=:7" in environment
    assert "a-secret" not in environment


def test_without_a_desktop_nothing_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not open_page(URL)
