# SPDX-License-Identifier: Apache-2.0
"""A commit that runs and whose manifest cannot be read: it must not stop the one that mends it."""

from typing import Any

import pytest
from pipecd_plugin_lambda.plugin import Lambda

from pipecd_sdk import StageStatus
from pipecd_sdk.testing import StageHarness
from pipecd_test_support.aws.lambda_lab import LambdaLab, succeeded

pytestmark = pytest.mark.xdist_group("lambda")


def spoil(lab: LambdaLab, commit: str) -> None:
    """Makes the manifest of a commit unreadable."""
    (lab.folder / commit / "function.yaml").write_text("{")


async def begin(lab: LambdaLab, **spec: Any) -> StageHarness[Lambda]:
    """A deployment of v2 where v1 runs, whose manifest cannot be read any more."""
    await lab.sync("v1", reservedConcurrency=5)
    spoil(lab, "v1")
    lab.write("v2", **spec)
    return lab.deploy("v2")


@pytest.mark.parametrize("fault", ["manifest", "options"])
async def test_a_commit_is_deployed_after_one_that_cannot_be_read(
    lab: LambdaLab, fault: str
) -> None:
    await lab.sync("v1")
    lab.write("v2", tags={"team": "shop"})
    if fault == "manifest":
        spoil(lab, "v1")
    else:
        lab.running_options = {"input": {"alias": "no name"}}
    harness = lab.deploy("v2")

    assert "the running commit cannot be read" in (await harness.strategy()).summary
    assert succeeded(await harness.run("LAMBDA_CANARY_ROLLOUT", {}))
    assert succeeded(await harness.run("LAMBDA_PROMOTE", {"percent": 100}, index=1))

    state = lab.read_state()
    assert (state["image"], state["alias"], state["tags"]["team"]) == (
        "shop:v2",
        {"2": 1.0},
        "shop",
    )
    assert "the manifest of the commit that ran cannot be read" in harness.text


async def test_the_traffic_comes_back_without_the_manifest_and_the_rest_is_told(
    lab: LambdaLab,
) -> None:
    harness = await begin(
        lab, reservedConcurrency=9, functionUrl={"authType": "NONE"}, provisionedConcurrency=2
    )
    assert succeeded(await harness.run("LAMBDA_SYNC"))
    assert lab.read_alias() == {"2": 1.0}

    result = await harness.run("LAMBDA_ROLLBACK", {})

    assert result.status is StageStatus.FAILURE
    assert "the alias Service is as before the deployment, but $LATEST" in result.reason
    assert "keeps what the failed commit has changed of its code" in result.reason
    assert "function.yaml" in result.reason
    assert lab.read_alias() == {"1": 1.0}
    reserved = lab.client.get_function_concurrency(FunctionName=lab.name)
    assert reserved["ReservedConcurrentExecutions"] == 5
    for taken in ("DeleteFunctionUrlConfig", "DeleteProvisionedConcurrencyConfig"):
        assert len(lab.aws.calls(taken)) == 1, taken


async def test_such_a_rollback_may_be_repeated_and_the_stage_be_retried(lab: LambdaLab) -> None:
    harness = await begin(lab)
    assert succeeded(await harness.run("LAMBDA_SYNC"))
    for _ in range(2):
        assert not succeeded(await harness.run("LAMBDA_ROLLBACK", {}))
        assert lab.read_alias() == {"1": 1.0}

    assert succeeded(await harness.run("LAMBDA_SYNC"))

    assert (lab.read_state()["image"], "1" in lab.read_alias()) == ("shop:v2", False)


async def test_an_alias_that_the_deployment_made_goes_without_the_manifest(lab: LambdaLab) -> None:
    """The function was there: the commit that ran has another alias of it."""
    await lab.sync("v1")
    lab.running_options = {"input": {"alias": "no name"}}
    lab.write("v2", functionUrl={})
    harness = lab.deploy("v2", options={"input": {"alias": "live"}})
    assert succeeded(await harness.run("LAMBDA_SYNC"))

    assert not succeeded(await harness.run("LAMBDA_ROLLBACK", {}))

    assert (lab.read_alias("live"), lab.read_alias()) == ({}, {"1": 1.0})


@pytest.mark.parametrize("is_readable", [False, True])
async def test_a_package_that_could_not_be_built_leaves_nothing_to_roll_back(
    lab: LambdaLab, is_readable: bool
) -> None:
    await lab.sync("v1")
    if not is_readable:
        spoil(lab, "v1")
    source = {"git": "https://127.0.0.1/shop.git", "ref": "main"}
    lab.write("v2", source=source, handler="a.b", runtime="python3.12")
    harness = lab.deploy("v2")
    assert "127.0.0.1" in (await harness.run("LAMBDA_SYNC")).reason
    lab.aws.forget()

    result = await harness.run("LAMBDA_ROLLBACK", {})

    assert succeeded(result), result.reason
    assert "the deployment has changed nothing" in harness.text
    assert lab.aws.calls() == []


async def test_a_first_change_of_which_nothing_is_known_is_rolled_back(lab: LambdaLab) -> None:
    """What AWS has done of a call that it answers with a refusal cannot be told."""
    await lab.sync("v1")
    spoil(lab, "v1")
    lab.write("v2", memory=512)
    harness = lab.deploy("v2")
    lab.aws.break_next("UpdateFunctionConfiguration", "deny")
    assert not succeeded(await harness.run("LAMBDA_SYNC"))

    result = await harness.run("LAMBDA_ROLLBACK", {})

    assert "the alias Service is as before the deployment, but $LATEST" in result.reason


async def test_an_alias_that_somebody_else_made_is_left_and_said_to_be(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.running_options = {"input": {"alias": "no name"}}
    lab.write("v2")
    harness = lab.deploy("v2", options={"input": {"alias": "live"}})
    assert succeeded(await harness.run("LAMBDA_CANARY_ROLLOUT", {}))
    lab.client.create_alias(FunctionName=lab.name, Name="live", FunctionVersion="1")

    result = await harness.run("LAMBDA_ROLLBACK", {})

    assert lab.read_alias("live") == {"1": 1.0}
    assert "the alias live, which was not there before the deployment, is left" in result.reason
    assert "is as before" not in result.reason


async def test_a_function_that_is_new_or_gone_is_told(lab: LambdaLab) -> None:
    lab.write("v1")
    lab.running = "v1"
    spoil(lab, "v1")
    lab.write("v2")
    harness = lab.deploy("v2")
    assert succeeded(await harness.run("LAMBDA_SYNC"))

    new = await harness.run("LAMBDA_ROLLBACK", {})
    lab.client.delete_function(FunctionName=lab.name)
    gone = await harness.run("LAMBDA_ROLLBACK", {})

    assert "was not there before the deployment, and stays" in new.reason
    assert f"the function {lab.name} is gone" in gone.reason


async def test_a_preview_against_a_commit_that_cannot_be_read_shows_all_as_new(
    lab: LambdaLab,
) -> None:
    lab.write("v1")
    lab.write("v2", memory=512)
    lab.running = "v1"
    spoil(lab, "v1")

    preview = (await lab.deploy("v2").plan_preview())["main"]

    assert preview.summary.startswith(
        "all is shown as new, the running commit cannot be read: function.yaml"
    )
    assert "512" in preview.details
    assert not preview.no_change
