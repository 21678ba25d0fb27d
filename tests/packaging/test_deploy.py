# SPDX-License-Identifier: Apache-2.0
"""The files in `deploy/`, read: what they promise about rights, sources and signals."""

import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from pipecd_test_support.containerfile import parse

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILES = sorted(DEPLOY.glob("*.Containerfile"))
UNITS = sorted(DEPLOY.glob("systemd/*.service"))
DEBIAN = "docker.io/library/debian:bookworm-slim"
every_unit = pytest.mark.parametrize("file", UNITS, ids=lambda file: file.stem)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_image_starts_without_rights(file: Path) -> None:
    users = [step.rest for step in parse(file.read_text()) if step.word == "USER"]

    assert users[-1] == "65532:65532"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_nothing_comes_from_a_moving_place(file: Path) -> None:
    """Programs come from the distribution's packages and from the wheels of this version."""
    for step in parse(file.read_text()):
        assert not re.search(r"https?://|git clone|pip install (?!.*--constraint)", step.rest)
        if step.word == "FROM":
            assert step.rest.startswith((DEBIAN, "pipecd/piped"))


def test_every_file_is_in_the_guide() -> None:
    guide = (ROOT / "docs" / "installing.md").read_text()

    for file in [*FILES, *DEPLOY.glob("systemd/*")]:
        assert f"(../{file.relative_to(ROOT)})" in guide


def read_unit(file: Path) -> dict[str, str]:
    """Returns the section [Service] of a unit; of a key that occurs twice, the last value."""
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(file.read_text())
    return dict(parser["Service"])


@every_unit
def test_a_unit_ends_its_own_process_alone(file: Path) -> None:
    """A script goes on while piped restarts; systemd would end it with everything else."""
    service = read_unit(file)

    assert service["KillMode"] == "process"
    assert int(service["TimeoutStopSec"]) >= 30


@every_unit
def test_a_unit_is_hardened(file: Path) -> None:
    service = read_unit(file)

    assert service["User"] not in ("", "root")
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert f"/var/lib/{service['StateDirectory']}" in service["ExecStart"]


def test_scripts_keep_their_temporary_folder_when_piped_restarts() -> None:
    assert "PrivateTmp" not in read_unit(DEPLOY / "systemd" / "piped.service")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@every_unit
def test_systemd_takes_the_unit(file: Path, tmp_path: Path) -> None:
    """It is verified as it is, but for the path of the program: that one is installed later."""
    text = re.sub(r"/opt/pipecd/bin/\w+", "/bin/true", file.read_text())
    (tmp_path / file.name).write_text(text)

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / file.name],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")
