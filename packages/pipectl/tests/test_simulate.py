# SPDX-License-Identifier: Apache-2.0
"""`pipectl simulate`: the three cases of the script-run guide, and others."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipecd_pipectl.cli import cli

HEAD = "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n"
STAGES = """\
  pipeline:
    stages:
      - name: K8S_CANARY_ROLLOUT
      - name: WAIT
        with: {duration: 10s}
      - name: SCRIPT_RUN
        SCRIPT
      - name: K8S_PRIMARY_ROLLOUT
      - name: SCRIPT_RUN
        SCRIPT
      - name: K8S_CANARY_CLEAN
      - name: SCRIPT_RUN
        SCRIPT
"""
NAMES = [
    "K8S_CANARY_ROLLOUT",
    "WAIT",
    "SCRIPT_RUN",
    "K8S_PRIMARY_ROLLOUT",
    "SCRIPT_RUN",
    "K8S_CANARY_CLEAN",
    "SCRIPT_RUN",
]


def simulate(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["simulate", *map(str, arguments)])


@pytest.fixture(params=["guide", "document"])
def seven(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    script = "with: {run: a, onRollback: b}"
    if request.param == "document":
        script = "runs: [a]\n        runsOnRollback: [b]"
    file = tmp_path / "app.pipecd.yaml"
    file.write_text(HEAD + STAGES.replace("SCRIPT\n", f"{script}\n"))
    return file


@pytest.mark.parametrize("option", ["--fail-at", "--cancel-at"])
@pytest.mark.parametrize(("stage", "undone"), [(3, [3]), (4, [3]), (6, [3, 5])])
def test_the_guides_three_cases(seven: Path, option: str, stage: int, undone: list[int]) -> None:
    word = "fails" if option == "--fail-at" else "is cancelled"
    expected = [f"{number}. {name} succeeds" for number, name in enumerate(NAMES, 1)][: stage - 1]
    expected.append(f"{stage}. {NAMES[stage - 1]} {word}")
    expected += [
        f"{number}. {NAMES[number - 1]} does not run: stage {stage} {word}"
        for number in range(stage + 1, 8)
    ]
    expected.append("rollback: K8S_ROLLBACK runs: what ran before is brought back")
    for number in (3, 5, 7):
        if number in undone:
            expected.append(
                f"rollback: SCRIPT_RUN_ROLLBACK of {number} runs:"
                f" SCRIPT_RUN of {number} had started"
            )
    for number in (3, 5, 7):
        if number not in undone:
            expected.append(
                f"rollback: SCRIPT_RUN_ROLLBACK of {number} does not run:"
                f" SCRIPT_RUN of {number} had not started"
            )

    assert simulate(seven, option, str(stage)).stdout.splitlines() == expected


def test_without_a_failure_everything_succeeds(seven: Path) -> None:
    lines = simulate(seven).stdout.splitlines()

    assert lines == [f"{number}. {name} succeeds" for number, name in enumerate(NAMES, 1)]


def test_programs_get_json(seven: Path) -> None:
    steps = json.loads(simulate(seven, "--fail-at", "4", "--output", "json").stdout)["steps"]

    assert [step["name"] for step in steps if step["rollback"] and step["runs"]] == [
        "K8S_ROLLBACK",
        "SCRIPT_RUN_ROLLBACK",
    ]


def test_rollback_that_is_off_is_said(tmp_path: Path) -> None:
    file = tmp_path / "app.pipecd.yaml"
    file.write_text(
        HEAD + "  planner: {autoRollback: false}\n  pipeline: {stages: [{name: K8S_SYNC}]}\n"
    )

    lines = simulate(file, "--fail-at", "1").stdout.splitlines()

    assert lines == ["1. K8S_SYNC fails", "rollback: nothing runs: autoRollback is off"]


@pytest.mark.parametrize(
    ("kind", "stage", "rollback"),
    [
        ("KubernetesApp", "K8S_SYNC", "K8S_ROLLBACK"),
        ("ECSApp", "ECS_SYNC", "ECS_ROLLBACK"),
        ("LambdaApp", "LAMBDA_SYNC", "LAMBDA_ROLLBACK"),
        ("CloudRunApp", "CLOUDRUN_SYNC", "CLOUDRUN_ROLLBACK"),
    ],
)
def test_without_a_pipeline_the_quick_sync_runs(
    tmp_path: Path, kind: str, stage: str, rollback: str
) -> None:
    file = tmp_path / "app.pipecd.yaml"
    file.write_text(HEAD.replace("KubernetesApp", kind) + "  name: x\n")

    assert simulate(file, "--fail-at", "1").stdout.splitlines() == [
        f"1. {stage} fails",
        f"rollback: {rollback} runs: what ran before is brought back",
    ]


def test_a_stage_that_there_is_not_is_said(seven: Path) -> None:
    assert "there is no stage 8" in str(simulate(seven, "--fail-at", "8").exception)


def test_the_stage_of_a_plugin_that_nobody_knows_is_said_to_be_one(tmp_path: Path) -> None:
    file = tmp_path / "app.pipecd.yaml"
    file.write_text(
        HEAD.replace("KubernetesApp", "Application") + "  pipeline: {stages: [{name: MINE}]}\n"
    )

    assert simulate(file).stdout.splitlines() == [
        "1. MINE succeeds: no well-known plugin offers it, so its rollback is not known"
    ]


def test_only_one_thing_happens_at_a_time(seven: Path) -> None:
    assert simulate(seven, "--fail-at", "1", "--cancel-at", "2").exit_code == 2


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    assert f"{tmp_path} is a folder" in str(simulate(tmp_path).exception)
