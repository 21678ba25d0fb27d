# SPDX-License-Identifier: Apache-2.0
"""Words of a repository, and secrets: the ones reach no command line, the others no log."""

import os
from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_terraform.command import MOST_ARGUMENTS
from pipecd_plugin_terraform.config import TerraformOptions, TerraformTarget

from pipecd_sdk import StageStatus
from pipecd_sdk.config import OptionFaultsError, read_value
from pipecd_test_support.terraform_lab import TerraformLab, data

# Writes the command lines of all processes, as any user of the machine can read them.
LOOK = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\\\0' ' ' > command-lines; env > environment"


def faults(kind: Any, given: dict[str, Any]) -> str:
    try:
        read_value(kind, given, path=())
    except OptionFaultsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workspace": "-help"}, "not a workspace: '-help'"),
        ({"workspace": "a b"}, "not a workspace"),
        ({"workspace": "../other"}, "not a workspace"),
        ({"workspace": "x\n"}, "not a workspace"),
        ({"terraformVersion": "1.9.8; id"}, "not a version"),
        ({"terraformVersion": "../1.9.8"}, "not a version"),
        ({"lockTimeout": "-1s"}, "lockTimeout: must be 0s to 24h: -1s"),
        ({"lockTimeout": "1000h"}, "lockTimeout: must be 0s to 24h"),
        ({"terraformVersion": "latest"}, "not a version"),
        ({"varFiles": ["/etc/passwd"]}, "not a path within the repository"),
        ({"varFiles": [""]}, "not a path within the repository"),
        ({"vars": ["novalue"]}, "vars[0]: is not name=value"),
        ({"vars": ["-out=x"]}, "vars[0]: is not name=value"),
        ({"vars": ["a=1", "a=2"]}, "'a' is given twice"),
        ({"commandFlags": {"plan": ["-out=x"]}}, "-out is the plugin's own"),
        ({"commandFlags": {"shared": ["--chdir=/"]}}, "-chdir is the plugin's own"),
        ({"commandFlags": {"apply": ["-state=x"]}}, "-state is the plugin's own"),
        ({"commandFlags": {"plan": ["elsewhere"]}}, "plan[0]: is not a flag"),
        ({"commandFlags": {"apply": ["other.tfplan"]}}, "apply[0]: is not a flag"),
        ({"commandFlags": {"plan": ["--"]}}, "plan[0]: is not a flag"),
        ({"commandFlags": {"plan": ["-target", "a.b", "c"]}}, "plan[2]: is not a flag"),
        ({"commandFlags": {"init": ["-from-module=x"]}}, "-from-module is the plugin's own"),
        ({"commandEnvs": {"shared": ["=x"]}}, "is not name=value"),
        ({"commandEnvs": {"shared": ["A B=x"]}}, "is not name=value"),
        ({"commandEnvs": {"plan": ["TF_CLI_ARGS_plan=-out=x"]}}, "-out is the plugin's own"),
        ({"commandEnvs": {"shared": ["TF_CLI_ARGS=-chdir=/"]}}, "-chdir is the plugin's own"),
        ({"commandEnvs": {"apply": ["TF_CLI_ARGS_apply='x"]}}, "a quote is never closed"),
        ({"workspace": "a", "commandEnvs": {"init": ["TF_WORKSPACE=b"]}}, "another workspace"),
        ({"input": {"workspace": "a"}, "workspace": "b"}, "is also given outside of input"),
        ({"input": []}, "input: must be a mapping"),
        ({"input": {"input": {"workspace": "a"}}}, "input.input: cannot stand within input"),
        ({"input": {"Input": None}}, "input.Input: cannot stand within input"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_before_a_deployment(
    given: dict[str, Any], said: str
) -> None:
    assert said in faults(TerraformOptions, given)


def test_a_switch_of_rollbacks_has_no_effect_and_says_so() -> None:
    """An author's `false` would be rolled back all the same."""
    given = {"input": {"workspace": "a", "autoRollback": False}}

    options, warnings = read_value(TerraformOptions, given, path=())

    assert options.workspace == "a"
    (warning,) = warnings
    assert str(warning) == (
        "input.autoRollback: has no effect here (write spec.planner.autoRollback)"
    )


def test_a_quick_sync_within_input_has_no_effect_and_says_so() -> None:
    options, warnings = read_value(
        TerraformOptions, {"input": {"workspace": "a", "QuickSync": {"workspace": "b"}}}, path=()
    )

    assert (options.workspace, options.quick_sync) == ("a", {})
    (warning,) = warnings
    assert str(warning) == "input.QuickSync: has no effect here (leave it out)"


def test_a_fault_shows_no_value() -> None:
    assert "hush" not in faults(TerraformOptions, {"vars": ["bad name=hush"]})
    assert "hush" not in faults(TerraformTarget, {"envs": ["bad name=hush"]})


@pytest.mark.parametrize(
    "given",
    [
        {"workspace": "blue", "input": {"workspace": "blue"}},
        {"input": {"terraformVersion": "1.9.8"}, "vars": ["a=b=c"], "quickSync": {}},
        {"workspace": "dev", "terraformVersion": "1.9.8", "vars": ["a=b"],
         "commandFlags": {"plan": ["-parallelism=5"]}},
        {"input": None},
        {"commandFlags": {"plan": ["-parallelism", "5", "-lock=false"]}},
        {"commandEnvs": {"plan": ["TF_CLI_ARGS_plan=-parallelism=5 -compact-warnings"]}},
        {"workspace": "a", "commandEnvs": {"shared": ["TF_WORKSPACE=a"]}},
    ],
    ids=str,
)  # fmt: skip
def test_both_forms_of_the_application_file_are_read(given: dict[str, Any]) -> None:
    assert faults(TerraformOptions, given) == ""


@pytest.mark.parametrize(
    "options",
    [
        {"varFiles": ["../../secret.tfvars"]},
        {"varFiles": ["link.tfvars"]},
        {"varFiles": ["-missing.tfvars"]},
        {"commandFlags": {"plan": ["-var-file=../../secret.tfvars"]}},
        {"commandFlags": {"shared": ["-var-file", "../../secret.tfvars"]}},
        {"commandFlags": {"init": ["-backend-config=../../secret.tfvars"]}},
        {"commandFlags": {"init": ["-backend-config", "../../secret.tfvars"]}},
        {"commandFlags": {"plan": ["-target-file=../../secret.tfvars"]}},
        {"commandEnvs": {"plan": ["TF_CLI_ARGS_plan=-var-file=../../secret.tfvars"]}},
        {"varFiles": ["../.git/config"]},
    ],
    ids=str,
)
async def test_no_path_leaves_the_repository(lab: TerraformLab, options: dict[str, Any]) -> None:
    secret = lab.folder / "secret.tfvars"
    secret.write_text('name = "hush-hush"\n')
    folder = lab.write("repository/app", data())
    (lab.folder / "repository" / ".git").mkdir()
    (lab.folder / "repository" / ".git" / "config").write_text("")
    (folder / "link.tfvars").symlink_to(secret)

    result = await lab.harness(folder, options=options).run("TERRAFORM_PLAN", {})

    assert result.status is StageStatus.FAILURE
    said = ("leads out of the repository", "is not in the repository", "is of git itself")
    assert any(each in result.reason for each in said), result.reason


async def test_a_var_file_that_looks_like_a_flag_is_a_file(lab: TerraformLab) -> None:
    folder = lab.write("app", 'variable "a" {\n}\n' + data(value="var.a"))
    (folder / "-destroy").write_text('a = "from the file"\n')

    result = await lab.harness(folder, options={"varFiles": ["-destroy"]}).run("TERRAFORM_SYNC")

    assert result.status is StageStatus.SUCCESS, result.reason
    assert lab.values() == {"terraform_data.one": "from the file"}


async def test_a_file_where_the_program_needs_its_folder_is_told(lab: TerraformLab) -> None:
    folder = lab.write("app", data())
    (folder / ".terraform").write_text("not a folder")

    result = await lab.harness(folder).run("TERRAFORM_APPLY")

    assert result.status is StageStatus.FAILURE
    assert ".terraform is a file" in result.reason


async def test_a_value_reaches_the_program_as_it_is_written(lab: TerraformLab) -> None:
    """Flags pass through a variable that the program splits as a shell does."""
    value = """a=b 'c' "d" $(id) `id` ${HOME} \\ # ; & | < > -out=x\tü"""
    folder = lab.write("app", 'variable "a" {\n}\n' + data(value="var.a"))
    harness = lab.harness(folder, options={"vars": [f"a={value}"]})

    result = await harness.run("TERRAFORM_SYNC")

    assert result.status is StageStatus.SUCCESS, result.reason
    assert lab.values() == {"terraform_data.one": value}


async def test_a_value_that_is_too_long_to_be_passed_is_told(lab: TerraformLab) -> None:
    folder = lab.write("app", 'variable "a" {\n}\n' + data(value="var.a"))
    longest = MOST_ARGUMENTS - 2_000  # the place of the state takes some, too

    fits = await lab.harness(folder, options={"vars": [f"a={'x' * longest}"]}).run("TERRAFORM_SYNC")
    harness = lab.harness(folder, options={"vars": [f"a={'x' * MOST_ARGUMENTS}"]})
    result = await harness.run("TERRAFORM_SYNC", index=1)

    assert fits.status is StageStatus.SUCCESS, fits.reason
    assert result.reason.startswith("the variables and flags of init are too long for the program")
    assert result.reason.endswith("(put long values into a file and name it in varFiles)")


async def test_secrets_are_in_no_command_line_and_in_no_log(lab: TerraformLab) -> None:
    text = 'variable "password" {\n}\nvariable "plain" {\n  sensitive = true\n}\n'
    folder = lab.write(
        "app", text + data(value="sha256(var.password)", run=f"{LOOK}; echo $THE_TOKEN") + OUTPUT
    )
    harness = lab.harness(
        folder,
        options={
            "vars": ["password={{ .encryptedSecrets.password }}"],
            "commandEnvs": {"shared": ["THE_TOKEN={{ .encryptedSecrets.token }}"]},
        },
        target={"vars": ["plain=of-the-target"], "envs": ["CLOUD_SECRET_KEY=cloud-hush"]},
        secrets={"password": "hush-password", "token": "hush-token"},
    )

    for index, stage in enumerate(("TERRAFORM_PLAN", "TERRAFORM_APPLY")):
        result = await harness.run(stage, {}, index=index)
        assert result.status is StageStatus.SUCCESS, result.reason

    seen = (folder / "command-lines").read_text()
    given = (folder / "environment").read_text()
    assert "apply" in seen, "the program was looked at while it ran"
    assert "THE_TOKEN=hush-token" in given
    assert "CLOUD_SECRET_KEY=cloud-hush" in given
    assert "PIPECD_SCRIPTS_DIR" not in given, "what is ours stays with us"
    for secret in ("hush-password", "hush-token", "of-the-target", "cloud-hush"):
        assert secret not in harness.text
        assert secret not in seen
    assert "(secret)" in harness.text


OUTPUT = 'output "shown" {\n  value = var.plain\n  sensitive = true\n}\n'


async def test_what_names_a_secret_cannot_be_planned_outside_of_a_stage(lab: TerraformLab) -> None:
    harness = lab.harness(
        lab.write("app", data()), options={"vars": ["a={{ .encryptedSecrets.password }}"]}
    )

    state = await harness.live_state()

    assert "opened for stages only" in state.sync.reason


async def test_a_program_that_is_too_old_is_named(
    lab: TerraformLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old" / "terraform"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho Terraform v0.13.0\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}{os.pathsep}{os.environ['PATH']}")

    result = await lab.harness(lab.write("app", data())).run("TERRAFORM_PLAN", {})

    assert "terraform 0.13.0 is too old (this plugin needs 1.1 or newer" in result.reason


async def test_two_deploy_targets_are_refused(lab: TerraformLab) -> None:
    harness = lab.harness(lab.write("app", data()))
    harness.targets = [*harness.targets, *harness.targets]

    result = await harness.run("TERRAFORM_PLAN", {})

    assert "has one deploy target, and this one has 2" in result.reason
