# SPDX-License-Identifier: Apache-2.0
"""What people may write for SCRIPT_RUN, and what they are told when it is wrong."""

import pytest
from pipecd_plugin_scriptrun.plugin import ScriptRun

from pipecd_sdk import PlannedStage
from pipecd_sdk.testing import StageHarness


def plan(*options: dict[str, object], rollback: bool = True) -> list[PlannedStage]:
    stages = [("SCRIPT_RUN", each) for each in options]
    return StageHarness(ScriptRun()).plan(*stages, rollback=rollback)


def faults(options: dict[str, object]) -> list[str]:
    return StageHarness(ScriptRun()).faults(("SCRIPT_RUN", options))


@pytest.mark.parametrize(
    "options",
    [
        {"run": "make", "onRollback": "make undo"},
        {"runs": ["make"], "runsOnRollback": ["make undo"]},
        {"run": "make", "runsOnRollback": ["make undo"]},
        {"RUN": "make", "OnRollback": "make undo"},
    ],
    ids=["guide", "rfc", "mixed", "any case"],
)
def test_both_spellings_plan_a_script_and_its_rollback(options: dict[str, object]) -> None:
    planned = plan(options)

    assert [(each.name, each.index, each.rollback) for each in planned] == [
        ("SCRIPT_RUN", 0, False),
        ("SCRIPT_RUN_ROLLBACK", 0, True),
    ]


def test_each_script_with_a_rollback_gets_one_at_its_own_place() -> None:
    planned = plan(
        {"run": "a", "onRollback": "undo a"}, {"run": "b"}, {"run": "c", "onRollback": "x"}
    )

    assert [each.index for each in planned if each.rollback] == [0, 2]


def test_no_rollback_stage_is_planned_when_none_is_wanted() -> None:
    """`autoRollback: false` holds for scripts too."""
    planned = plan({"run": "a", "onRollback": "undo a"}, rollback=False)

    assert [each.name for each in planned] == ["SCRIPT_RUN"]


def test_a_rollback_stage_cannot_be_written_in_a_pipeline() -> None:
    (fault,) = StageHarness(ScriptRun()).faults(("SCRIPT_RUN_ROLLBACK", {"run": "make"}))

    assert fault == (
        "stages[0]: SCRIPT_RUN_ROLLBACK cannot be written in a pipeline "
        "(it is added by itself, as the rollback of another stage)"
    )


@pytest.mark.parametrize("options", [{}, {"run": " \n"}, {"runs": []}, {"runs": [" "]}])
def test_a_stage_without_commands_is_refused(options: dict[str, object]) -> None:
    assert faults(options) == ["stages[0].with.run: missing (give the commands of the script)"]


def test_all_faults_are_told_at_once() -> None:
    found = faults({"run": 3, "env": {"A": 1}, "onRollback": ["make"]})

    assert [fault.split(": ")[0] for fault in found] == [
        "stages[0].with.run",
        "stages[0].with.onRollback",
        "stages[0].with.env.A",
    ]


@pytest.mark.parametrize("name", ["B=", "", "A\0"])
def test_a_variable_needs_a_name(name: str) -> None:
    assert faults({"run": "make", "env": {name: "x"}}) == [
        f"stages[0].with.env.{name}: not the name of a variable: {name!r}"
    ]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"run": "make", "runs": ["make"]}, "runs"),
        ({"run": "make", "onRollback": "undo", "runsOnRollback": ["undo"]}, "runsOnRollback"),
    ],
)
def test_a_script_is_given_once(options: dict[str, object], path: str) -> None:
    (fault,) = faults(options)

    assert fault.startswith(f"stages[0].with.{path}: ")
    assert "are the same setting (use only" in fault


@pytest.mark.parametrize(
    "command",
    [
        "docker inspect -f '{{.Id}}' web",
        "kubectl get pods -o go-template='{{ range .items }}{{ .metadata.name }}{{ end }}'",
        "echo .encryptedSecrets.password",
    ],
)
def test_other_braces_belong_to_the_command(command: str) -> None:
    assert faults({"run": command}) == []


def test_a_null_character_is_refused() -> None:
    assert faults({"run": "echo a\0b"}) == ["stages[0].with.run: contains a null character"]
