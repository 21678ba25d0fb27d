# SPDX-License-Identifier: Apache-2.0
"""What a script finds in its environment."""

import json

from pipecd_plugin_scriptrun.environment import script_environment

from pipecd_sdk import Deployment, replace
from pipecd_sdk.testing.harness import example_deployment


def environment(
    *,
    inherited: dict[str, str] | None = None,
    deployment: Deployment | None = None,
    given: dict[str, str] | None = None,
    rollback: bool = False,
) -> dict[str, str]:
    return script_environment(
        inherited or {},
        deployment or example_deployment(),
        given or {},
        rollback=rollback,
        script_id="id-1",
    )


def test_every_documented_variable_is_there() -> None:
    deployment = replace(example_deployment(), commander="alice")

    assert environment(deployment=deployment) == {
        "SR_DEPLOYMENT_ID": "deployment-1",
        "SR_APPLICATION_ID": "application-1",
        "SR_APPLICATION_NAME": "shop",
        "SR_TRIGGERED_AT": "1704196800",
        "SR_TRIGGERED_COMMIT_HASH": "0123456789abcdef0123456789abcdef01234567",
        "SR_TRIGGERED_COMMANDER": "alice",
        "SR_REPOSITORY_URL": "https://git.example.com/shop.git",
        "SR_SUMMARY": "Deploy with the pipeline",
        "SR_IS_ROLLBACK": "false",
        "SR_LABELS_ENV": "dev",
        "SR_CONTEXT_RAW": (
            '{"deploymentID":"deployment-1","applicationID":"application-1",'
            '"applicationName":"shop","triggeredAt":1704196800,'
            '"triggeredCommitHash":"0123456789abcdef0123456789abcdef01234567",'
            '"triggeredCommander":"alice",'
            '"repositoryURL":"https://git.example.com/shop.git",'
            '"summary":"Deploy with the pipeline","labels":{"env":"dev"}}'
        ),
        "PIPECD_SCRIPT_ID": "id-1",
    }


def test_the_context_leaves_out_what_is_empty() -> None:
    deployment = replace(example_deployment(), summary="", labels={})

    found = environment(deployment=deployment)

    assert found["SR_SUMMARY"] == ""
    assert json.loads(found["SR_CONTEXT_RAW"]).keys() == {
        "deploymentID",
        "applicationID",
        "applicationName",
        "triggeredAt",
        "triggeredCommitHash",
        "repositoryURL",
    }


def test_a_rollback_knows_that_it_is_one() -> None:
    found = environment(rollback=True)

    assert found["SR_IS_ROLLBACK"] == "true"
    assert json.loads(found["SR_CONTEXT_RAW"])["isRollback"] is True


def test_nobody_is_the_commander_of_what_piped_started() -> None:
    """Not the author of the commit: they asked for nothing."""
    assert environment()["SR_TRIGGERED_COMMANDER"] == ""


def test_a_label_becomes_a_name_that_a_shell_can_use() -> None:
    deployment = replace(example_deployment(), labels={"my.org/cost-center": "42"})

    found = environment(deployment=deployment)

    assert found["SR_LABELS_MY_ORG_COST_CENTER"] == "42"
    assert json.loads(found["SR_CONTEXT_RAW"])["labels"] == {"my.org/cost-center": "42"}


def test_the_authors_variables_win_over_all_but_the_scripts_token() -> None:
    found = environment(
        inherited={"PATH": "/bin", "MSG": "old"},
        given={"MSG": "new", "SR_SUMMARY": "mine", "PIPECD_SCRIPT_ID": "forged"},
    )

    assert (found["PATH"], found["MSG"], found["SR_SUMMARY"]) == ("/bin", "new", "mine")
    assert found["PIPECD_SCRIPT_ID"] == "id-1"


def test_our_own_secrets_stay_out() -> None:
    found = environment(
        inherited={
            "HOME": "/root",
            "PIPECD_PLUGIN_TOKEN": "t",
            "PIPECD_ANYTHING": "x",
            "GRPC_ENABLE_FORK_SUPPORT": "0",
        }
    )

    assert found["HOME"] == "/root"
    assert not {name for name in found if name.startswith("PIPECD_")} - {"PIPECD_SCRIPT_ID"}
    assert "GRPC_ENABLE_FORK_SUPPORT" not in found


def test_a_null_character_in_what_is_told_does_not_stop_the_script() -> None:
    deployment = replace(example_deployment(), summary="a\0b")

    assert environment(deployment=deployment)["SR_SUMMARY"] == "ab"
