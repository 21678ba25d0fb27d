# SPDX-License-Identifier: Apache-2.0
"""The check of `proto/` finds an RPC without its right and a breaking change of our packages."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
API = "pipecd_wire/pipecd/api/api.proto"
PUSH = "pipecd_wire/pipecd/push/push.proto"
WEB = "pipecd_wire/webservice/service.proto"

EMPTY = "message ReleaseLeaseResponse {}"
GROWN = "message ReleaseLeaseResponse { bool released = 1; }"


def check(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools" / "check_proto.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def replace(file: Path, old: str, new: str) -> None:
    """Change the first place, and fail when there is none."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.fixture
def protos(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "proto", tmp_path / "proto"))


@pytest.fixture
def frozen(protos: Path) -> Path:
    for name in ("FROZEN", "baseline.binpb"):
        (protos / name).unlink(missing_ok=True)
    assert check("--proto", protos, "--freeze").returncode == 0
    return protos


def test_the_protos_of_this_project_pass_and_nothing_is_printed() -> None:
    checked = check()

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("file", "right", "rpc"),
    [
        (API, "    option (pipecd.options.role) = READ_WRITE;\n", "DeploymentService.ApproveStage"),
        (
            API,
            "    option (model.rbac) = {resource: DEPLOYMENT, action: UPDATE};\n",
            "DeploymentService.ApproveStage",
        ),
        (PUSH, "  option (pipecd.options.callers) = PIPED;\n", "PushService"),
        (WEB, "  option (pipecd.options.callers) = SESSION;\n", "WebService"),
    ],
    ids=["role", "rbac", "callers", "callers upstream"],
)
def test_an_rpc_without_its_right_fails_and_is_named(
    protos: Path, file: str, right: str, rpc: str
) -> None:
    replace(protos / file, right, "")

    checked = check("--proto", protos)

    assert checked.returncode == 1
    assert f"{file}: " in checked.stderr
    assert f".{rpc} " in checked.stderr


def test_a_field_that_is_gone_fails_once_the_packages_are_frozen(frozen: Path) -> None:
    replace(frozen / PUSH, "  string reason = 3;\n", "")

    checked = check("--proto", frozen)

    assert checked.returncode == 1
    assert '"reason"' in checked.stderr


def test_a_package_that_is_gone_fails_once_the_packages_are_frozen(frozen: Path) -> None:
    (frozen / API).unlink()

    checked = check("--proto", frozen)

    assert checked.returncode == 1
    assert API in checked.stderr


def test_a_field_that_is_gone_passes_while_nothing_is_frozen(frozen: Path) -> None:
    (frozen / "FROZEN").unlink()
    replace(frozen / PUSH, "  string reason = 3;\n", "")

    assert check("--proto", frozen).returncode == 0


def test_a_frozen_package_may_grow_and_what_it_grew_is_frozen_next(frozen: Path) -> None:
    replace(frozen / PUSH, EMPTY, GROWN)

    assert check("--proto", frozen).returncode == 0
    assert check("--proto", frozen, "--freeze").returncode == 0
    replace(frozen / PUSH, GROWN, EMPTY)

    assert check("--proto", frozen).returncode == 1


def test_freezing_again_does_not_hide_a_breaking_change(frozen: Path) -> None:
    replace(frozen / PUSH, "  string reason = 3;\n", "")

    assert check("--proto", frozen, "--freeze").returncode == 1
    assert check("--proto", frozen).returncode == 1


def test_a_lost_baseline_fails(frozen: Path) -> None:
    (frozen / "baseline.binpb").unlink()

    checked = check("--proto", frozen)

    assert checked.returncode == 1
    assert "baseline.binpb" in checked.stderr
