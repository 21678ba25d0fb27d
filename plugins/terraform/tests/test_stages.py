# SPDX-License-Identifier: Apache-2.0
"""Plan, approve, apply: exactly the plan that was shown, or none; and back again."""

import fcntl
import json
import shutil
from pathlib import Path

import pytest
from pipecd_plugin_terraform import saved_plan
from pipecd_plugin_terraform.plugin import TerraformPlugin

from pipecd_sdk import Severity, StageStatus, replace
from pipecd_sdk.testing import StageHarness, deploy_target
from pipecd_test_support.terraform_lab import TerraformLab, data

PLAN, APPLY, SYNC, ROLLBACK = (
    "TERRAFORM_PLAN",
    "TERRAFORM_APPLY",
    "TERRAFORM_SYNC",
    "TERRAFORM_ROLLBACK",
)


def find_plan(scripts: Path) -> Path:
    """The only plan that is saved."""
    (saved,) = scripts.glob("deployment-1/terraform-plans/*.tfplan")
    return saved


def test_a_pipeline_keeps_its_places_and_gets_one_rollback_stage() -> None:
    harness = StageHarness(TerraformPlugin())

    planned = harness.plan((PLAN, {"exitOnNoChanges": True}), (APPLY, {}))

    assert [(each.name, each.index, each.rollback) for each in planned] == [
        (PLAN, 0, False),
        (APPLY, 1, False),
        (ROLLBACK, 0, True),
    ]
    assert [each.name for each in harness.quick_sync()] == [APPLY, ROLLBACK]
    assert harness.faults((PLAN, {"exitOnNoChanges": "maybe"})) != []


async def test_the_plan_is_shown_saved_and_applied(lab: TerraformLab, scripts: Path) -> None:
    folder = lab.write(
        "app", data(run="echo made it") + 'output "it" {\n  value = "what-it-says"\n}\n'
    )
    harness = lab.harness(folder)

    planned = await harness.run(PLAN, {})
    assert planned.status is StageStatus.SUCCESS, planned.reason
    assert lab.values() == {}
    assert harness.metadata.values["pipecd/stage-display-metadata"] == (
        "1 to add, 0 to change, 0 to destroy"
    )
    saved = find_plan(scripts)
    assert saved.stat().st_mode & 0o077 == 0
    assert saved.parent.stat().st_mode & 0o077 == 0

    applied = await harness.run(APPLY, {}, index=1)
    assert applied.status is StageStatus.SUCCESS, applied.reason
    assert lab.values() == {"terraform_data.one": "v1"}
    assert not lab.is_locked()
    text = harness.text
    assert '+ input = "v1"' in text
    assert "terraform_data.one: (local-exec): made it" in text
    assert "terraform_data.one: Creation complete" in text
    assert "Outputs: it" in text
    assert '{"@level"' not in text, "no JSON is shown to people"
    assert "\x1b" not in text
    assert any(
        line.severity is Severity.SUCCESS and line.text.startswith("Apply complete!")
        for line in harness.log
    )


async def test_a_plan_without_changes_ends_the_pipeline_only_where_it_is_wanted(
    lab: TerraformLab,
) -> None:
    harness = lab.harness(lab.write("app", data()))
    assert (await harness.run(SYNC)).status is StageStatus.SUCCESS

    again = await harness.run(PLAN, {"exitOnNoChanges": True}, index=1)
    assert again.status is StageStatus.EXITED
    assert (await harness.run(PLAN, {}, index=2)).status is StageStatus.SUCCESS
    nothing = await harness.run(APPLY, {}, index=3)
    assert nothing.status is StageStatus.SUCCESS
    assert "No changes: there is nothing to apply" in harness.text


async def test_a_plan_that_is_too_large_to_be_shown_is_applied_all_the_same(
    lab: TerraformLab,
) -> None:
    size = 5_000_000  # which a plan holds four times
    text = data(value='file("large.txt")') + 'output "it" {\n  value = 1\n}\n'
    folder = lab.write("app", text, large__txt="x" * size)
    harness = lab.harness(folder)

    planned = await harness.run(PLAN, {"exitOnNoChanges": True})

    assert planned.status is StageStatus.SUCCESS, planned.reason
    assert "1 to add, 0 to change, 0 to destroy" in harness.text
    assert [line.text for line in harness.log if line.text.startswith(("# ", "~ "))] == [
        "# the plan is too large for its values to be shown",
        "# terraform_data.one will be created",
        "# outputs",
        "~ it",
    ]
    applied = await harness.run(APPLY, {}, index=1)
    assert applied.status is StageStatus.SUCCESS, applied.reason
    assert len(lab.values()["terraform_data.one"]) == size

    again = await harness.run(PLAN, {"exitOnNoChanges": True}, index=2)
    assert again.status is StageStatus.EXITED, again.reason


async def test_what_only_the_program_can_tell_from_no_change_is_applied(lab: TerraformLab) -> None:
    """As the end of a long output, or an output without a value in it."""
    values = (f'"{"x" * 500}a"', f'"{"x" * 500}b"', "[null]")
    for index, value in enumerate(values):
        folder = lab.write("app", f'output "it" {{\n  value = {value}\n}}\n')
        result = await lab.harness(folder).run(SYNC, {}, index=index)
        assert result.status is StageStatus.SUCCESS, result.reason

        kept = json.loads(lab.state.read_text())["outputs"]["it"]["value"]
        assert kept == json.loads(value)


async def test_a_plan_of_outputs_alone_is_a_change(lab: TerraformLab) -> None:
    harness = lab.harness(lab.write("app", 'output "it" {\n  value = "x"\n}\n'))

    assert (await harness.run(PLAN, {"exitOnNoChanges": True})).status is StageStatus.SUCCESS
    assert "changes to outputs only" in harness.text


async def test_a_stale_plan_is_refused_with_a_sentence(lab: TerraformLab) -> None:
    folder = lab.write("app", data())
    harness = lab.harness(folder)
    await harness.run(PLAN, {})
    other = lab.harness(lab.write("other", data("other")))
    other.deployment_metadata.values.clear()
    assert (await other.run(SYNC, index=7)).status is StageStatus.SUCCESS

    result = await harness.run(APPLY, {}, index=1)

    assert result.status is StageStatus.FAILURE
    assert result.reason.startswith("the plan is stale: the state has changed since it was made")
    assert "deploy again" in result.reason
    assert lab.values() == {"terraform_data.other": "v1"}


@pytest.mark.parametrize("what", ["changed", "lost"])
async def test_another_plan_than_the_one_that_was_shown_is_never_applied(
    lab: TerraformLab, scripts: Path, what: str
) -> None:
    harness = lab.harness(lab.write("app", data()))
    await harness.run(PLAN, {})
    saved = find_plan(scripts)
    if what == "lost":
        saved.unlink()
    else:
        saved.write_bytes(saved.read_bytes() + b"x")

    result = await harness.run(APPLY, {}, index=1)

    assert result.status is StageStatus.FAILURE
    assert ("not on this machine any more" if what == "lost" else "has changed") in result.reason
    assert lab.values() == {}


async def test_the_file_of_a_saved_plan_cannot_be_named_elsewhere(lab: TerraformLab) -> None:
    harness = lab.harness(lab.write("app", data()))
    record = {"file": "../../../etc/passwd", "sha256": "0", "summary": "", "is_empty": False}
    harness.deployment_metadata.values[saved_plan.KEY] = json.dumps(record)

    result = await harness.run(APPLY, {})

    assert "not on this machine any more" in result.reason


async def test_an_apply_without_a_plan_before_it_plans_by_itself(lab: TerraformLab) -> None:
    harness = lab.harness(lab.write("app", data()))

    assert (await harness.run(APPLY, {})).status is StageStatus.SUCCESS
    assert lab.values() == {"terraform_data.one": "v1"}


async def test_a_rollback_applies_what_ran_before(lab: TerraformLab) -> None:
    before = lab.write("before", data())
    first = lab.harness(before)
    await first.run(SYNC)
    after = lab.write("after", data(value='"v2"') + data("broken", run="exit 3"))
    harness = lab.harness(after, running_directory=before)
    harness.deployment = replace(harness.deployment, id="deployment-2")

    failed = await harness.run(SYNC)
    assert failed.status is StageStatus.FAILURE
    assert "terraform_data.broken" in failed.reason
    assert lab.values()["terraform_data.one"] == "v2"
    back = await harness.run(ROLLBACK, index=1)

    assert back.status is StageStatus.SUCCESS, back.reason
    assert lab.values() == {"terraform_data.one": "v1"}


async def test_a_rollback_does_nothing_where_nothing_was_applied(lab: TerraformLab) -> None:
    harness = lab.harness(lab.write("app", data(value="nonsense")))
    failed = await harness.run(PLAN, {})
    assert failed.status is StageStatus.FAILURE
    assert "Invalid reference" in failed.reason

    assert (await harness.run(ROLLBACK, index=1)).status is StageStatus.SUCCESS
    assert "Nothing had been applied" in harness.text


async def test_a_first_deployment_cannot_be_rolled_back(lab: TerraformLab) -> None:
    harness = lab.harness(lab.write("app", data(run="exit 3")))
    assert (await harness.run(SYNC)).status is StageStatus.FAILURE

    result = await harness.run(ROLLBACK, index=1)

    assert result.status is StageStatus.FAILURE
    assert "there is no commit to go back to" in result.reason


async def test_a_workspace_is_made_only_when_it_is_asked_for(lab: TerraformLab) -> None:
    folder = lab.write("app", data(value="terraform.workspace"))

    refused = await lab.harness(folder, options={"workspace": "blue"}).run(SYNC)
    assert refused.status is StageStatus.FAILURE
    assert "there is no workspace 'blue' (set createWorkspace: true" in refused.reason

    options = {"workspace": "blue", "createWorkspace": True}
    made = await lab.harness(folder, options=options).run(SYNC, index=1)
    assert made.status is StageStatus.SUCCESS, made.reason
    assert lab.values("blue") == {"terraform_data.one": "blue"}
    assert lab.values() == {}


async def test_options_of_older_files_are_read_from_input(lab: TerraformLab) -> None:
    variable = 'variable "name" {\n  type = string\n}\n'
    folder = lab.write("app", variable + data(value="var.name"), more__tfvars='name = "file"\n')
    options = {
        "input": {"vars": ["name=given"], "varFiles": ["more.tfvars"], "autoRollback": False},
        "quickSync": {},
    }

    assert (await lab.harness(folder, options=options).run(SYNC)).status is StageStatus.SUCCESS
    assert lab.values() == {"terraform_data.one": "file"}, "the file comes after the variables"


async def test_variables_of_the_target_come_before_those_of_the_application(
    lab: TerraformLab,
) -> None:
    """Also flags of apply that decide what a plan says: a saved plan takes none of them."""
    text = 'variable "a" {\n}\nvariable "b" {\n  type = list(string)\n}\n'
    folder = lab.write("app", text + data(value='"${var.a}-${var.b[1]}"') + data("two"))
    harness = lab.harness(
        folder,
        target={"vars": ["a=target", 'b=["x", "y"]']},
        options={
            "vars": ["a=it's $HOME `id`"],
            "commandFlags": {"apply": ["-target", "terraform_data.one"]},
        },
    )

    assert (await harness.run(PLAN, {})).status is StageStatus.SUCCESS
    assert (await harness.run(APPLY, {}, index=1)).status is StageStatus.SUCCESS
    assert lab.values() == {"terraform_data.one": "it's $HOME `id`-y"}


async def test_a_state_among_the_files_of_the_commit_is_refused(lab: TerraformLab) -> None:
    """It would be lost with them, and everything be made a second time."""
    folder = lab.write("app", data())
    (folder / "main.tf").write_text(data())
    harness = StageHarness(
        TerraformPlugin(), directory=folder, targets=[deploy_target(TerraformPlugin, "dev")]
    )

    result = await harness.run(SYNC)

    assert result.status is StageStatus.FAILURE
    assert "lost with them" in result.reason
    assert not (folder / "terraform.tfstate").exists()


async def test_a_lock_that_another_holds_is_named(lab: TerraformLab) -> None:
    folder = lab.write("app", data())
    harness = lab.harness(folder)
    await harness.run(SYNC)
    lock = {
        "ID": "0b0a3b4c-1111-2222-3333-444455556666",
        "Operation": "OperationTypeApply",
        "Info": "",
        "Who": "ann@desk",
        "Version": "1.0.0",
        "Created": "2026-01-02T03:04:05.678Z",
        "Path": str(lab.state),
    }
    changed = lab.harness(lab.write("changed", data(value='"v2"')))
    with lab.state.open("r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        lab.state.with_name(f".{lab.state.name}.lock.info").write_text(json.dumps(lock))

        assert (await changed.run(PLAN, {})).status is StageStatus.SUCCESS, "a plan needs no lock"
        result = await changed.run(APPLY, {}, index=1)

    assert result.status is StageStatus.FAILURE
    assert result.reason.startswith(
        "the state is locked by ann@desk since 2026-01-02 03:04:05 +0000 UTC for apply"
    )
    assert f"terraform force-unlock {lock['ID']}" in result.reason
    assert lab.values() == {"terraform_data.one": "v1"}


@pytest.mark.parametrize("program", ["terraform", "tofu"])
async def test_both_programs_do_it(lab: TerraformLab, program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program}")
    harness = lab.harness(lab.write("app", data()), config={"program": program})

    assert (await harness.run(SYNC)).status is StageStatus.SUCCESS
    assert f"{program} apply" in harness.text
