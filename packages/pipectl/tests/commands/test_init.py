# SPDX-License-Identifier: Apache-2.0
"""`pipectl init`: whatever is chosen, the file is one that lint finds nothing wrong with."""

import itertools
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipecd_model.config import load_application
from pipecd_model.config.application import ApplicationConfig
from pipecd_model.errors import ConfigError, ConflictError
from pipecd_pipectl.appfile import PLATFORMS, SCRIPT
from pipecd_pipectl.cli import cli

PIPECTL = Path(sys.executable).parent / "pipectl"
LIMIT_SECONDS = 60

SCRIPTS: list[list[str]] = [
    [],
    ["--script", "./build.sh", "--on-rollback", "./undo.sh"],
    ["--script", "a: b # 'c' \"d\" \\\n\techo é", "--script", "- x", "--on-rollback", "no"],
]
WAITS: list[list[str]] = [[], ["--wait", "1h30m"]]
APPROVALS: list[list[str]] = [[], ["--approval"], ["--approver", "ann lee", "--approver", 'b"o']]


def init(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["init", *map(str, arguments)])


def load(file: Path) -> ApplicationConfig:
    return load_application(file.read_bytes(), file=str(file), strict=True).config


def stages(file: Path) -> list[str]:
    return [stage.name for stage in load(file).pipeline.stages]


@pytest.mark.parametrize("plugin", list(PLATFORMS))
def test_every_combination_of_choices_passes_lint(plugin: str, tmp_path: Path) -> None:
    for number, parts in enumerate(itertools.product(SCRIPTS, WAITS, APPROVALS)):
        scripts, wait, approval = parts
        if plugin == SCRIPT and not scripts:
            continue
        folder = tmp_path / f"app {number}"
        arguments = ["--plugin", plugin, "--sync", "pipeline", *scripts, *wait, *approval]

        done = init(folder, *arguments)
        linted = CliRunner().invoke(cli, ["lint", str(folder)])

        assert done.exit_code == 0, done.output
        assert linted.exit_code == 0, linted.output
        assert all("not installed here" in line for line in linted.stdout.splitlines())
        names = stages(folder / "app.pipecd.yaml")
        assert names.count("SCRIPT_RUN") == scripts.count("--script")
        assert ("WAIT" in names) == bool(wait)
        assert ("WAIT_APPROVAL" in names) == bool(approval)
        assert load(folder / "app.pipecd.yaml").name == f"app {number}"


@pytest.mark.parametrize("plugin", [each for each in PLATFORMS if each != SCRIPT])
@pytest.mark.parametrize("sync", [[], ["--sync", "quick"]])
def test_a_quick_sync_has_no_pipeline(plugin: str, sync: list[str], tmp_path: Path) -> None:
    assert init(tmp_path, "--plugin", plugin, "--name", "x", *sync).exit_code == 0

    config = load(tmp_path / "app.pipecd.yaml")
    assert config.pipeline.stages == ()
    assert list(config.plugins) == [plugin]
    assert CliRunner().invoke(cli, ["lint", str(tmp_path)]).exit_code == 0


def test_scripts_prepare_a_platform_and_follow_an_approval_alone(tmp_path: Path) -> None:
    flags = ("--script", "./x.sh", "--approval")
    init(tmp_path / "a", "--plugin", "terraform", *flags)
    init(tmp_path / "b", "--plugin", "script", *flags)

    assert stages(tmp_path / "a" / "app.pipecd.yaml") == [
        *("SCRIPT_RUN", "TERRAFORM_PLAN", "WAIT_APPROVAL", "TERRAFORM_APPLY")
    ]
    assert stages(tmp_path / "b" / "app.pipecd.yaml") == ["WAIT_APPROVAL", "SCRIPT_RUN"]


def test_what_was_typed_is_what_runs(tmp_path: Path) -> None:
    scripts = [
        "true",
        "1",
        "~",
        "a: b",
        "#x",
        "é\u2028\x07",
        "  a  ",
        "line\nnext",
        "*x",
        "%y",
        "'",
    ]
    flags = [word for script in scripts for word in ("--script", script, "--on-rollback", script)]
    init(tmp_path, "--plugin", "script", "--name", "no", *flags)

    config = load(tmp_path / "app.pipecd.yaml")
    assert config.name == "no"
    assert [stage.with_["run"] for stage in config.pipeline.stages] == scripts
    assert [stage.with_["onRollback"] for stage in config.pipeline.stages] == scripts


def test_a_file_is_never_overwritten_without_force(tmp_path: Path) -> None:
    file = tmp_path / "app.pipecd.yaml"
    file.write_text("mine\n")

    refused = init(tmp_path, "--plugin", "terraform")

    assert isinstance(refused.exception, ConflictError)
    assert refused.exception.hint == "overwrite it with --force"
    assert file.read_text() == "mine\n"
    assert init(tmp_path, "--plugin", "terraform", "--dry-run").stdout.startswith("apiVersion")
    assert file.read_text() == "mine\n"
    assert init(tmp_path, "--plugin", "terraform", "--force").exit_code == 0
    assert load(file).plugins
    assert [each.name for each in tmp_path.iterdir()] == ["app.pipecd.yaml"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "set --plugin"),
        (["--plugin", "script"], "needs at least one --script"),
        (["--plugin", "script", "--script", "x", "--sync", "quick"], "has no quick sync"),
        (["--plugin", "files", "--sync", "quick", "--approval"], "need --sync pipeline"),
        (["--plugin", "files", "--on-rollback", "x"], "more --on-rollback than --script"),
        (["--plugin", "files", "--wait", "soon"], "not a duration"),
        (["--plugin", "nothing"], "is not one of"),
    ],
)
def test_choices_that_contradict_themselves_are_refused(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = init(tmp_path / "app", *arguments)

    assert done.exit_code == 2
    assert said in done.output
    assert not (tmp_path / "app").exists()


def test_a_file_of_another_name_is_refused(tmp_path: Path) -> None:
    done = init(tmp_path / "shop.yaml", "--plugin", "files")

    assert done.exit_code == 2
    assert "must end with .pipecd.yaml" in done.output
    assert init(tmp_path / "shop.pipecd.yaml", "--plugin", "files").exit_code == 0


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = init(tmp_path / "file" / "app", "--plugin", "files")

    assert isinstance(done.exception, ConfigError)
    assert "cannot write" in str(done.exception)


def talk(folder: Path, *answers: str) -> str:
    """Run it on a terminal and type the answers, each when a question stands there."""
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        [PIPECTL, "init"], cwd=folder, stdin=inner, stdout=inner, stderr=inner, close_fds=True
    )
    os.close(inner)
    shown = ""
    left = list(answers)
    limit = time.monotonic() + LIMIT_SECONDS
    asked = 0
    while time.monotonic() < limit:
        try:
            part = os.read(terminal, 4096).decode(errors="replace")
        except OSError:
            break  # it has ended
        if not part:
            break
        shown += part
        if left and shown[asked:].rstrip(" ").endswith(":"):
            asked = len(shown)
            os.write(terminal, f"{left.pop(0)}\n".encode())
    os.close(terminal)
    assert process.wait(LIMIT_SECONDS) == 0, shown
    return shown


def test_on_a_terminal_it_asks(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()

    shown = talk(folder, "", "", "", "./deploy.sh", "./undo.sh", "", "y", "ann, bob")

    assert "What deploys the application?" in shown
    assert "an application of scripts needs at least one" in shown
    config = load(folder / "app.pipecd.yaml")
    assert config.name == "shop"
    approval, script = config.pipeline.stages
    assert approval.with_ == {"approvers": ["ann", "bob"]}
    assert script.with_ == {"run": "./deploy.sh", "onRollback": "./undo.sh"}


def test_on_a_terminal_a_platform_is_asked_for_the_kind_of_sync(tmp_path: Path) -> None:
    talk(tmp_path, "kubernetes", "web", "pipeline", "", "n")

    assert stages(tmp_path / "app.pipecd.yaml") == [
        *("K8S_CANARY_ROLLOUT", "K8S_PRIMARY_ROLLOUT", "K8S_CANARY_CLEAN")
    ]
