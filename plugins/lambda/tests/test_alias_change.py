# SPDX-License-Identifier: Apache-2.0
"""A commit that names another alias, and the way back: each alias leads to what it had before.

The server has one URL and one concurrency for a function: whose they are is seen in the calls.
"""

from typing import Any

import pytest
from pipecd_plugin_lambda.plugin import Lambda

from pipecd_sdk.testing import StageHarness
from pipecd_test_support.aws.lambda_lab import LambdaLab, succeeded

pytestmark = pytest.mark.xdist_group("lambda")

LIVE = {"input": {"alias": "live"}}


async def sync_first(lab: LambdaLab, **spec: Any) -> None:
    """Deploys a commit whose alias is `Service`; the next one may have another."""
    await lab.sync("v1", **spec)
    lab.running_options = {}


async def fail_after(harness: StageHarness[Lambda], lab: LambdaLab, step: str) -> None:
    """Runs a sync that fails at a step; without one it succeeds, and something later fails."""
    if step:
        lab.aws.break_next(step, "refuse", code="InvalidParameterValueException", message="no")
    assert succeeded(await harness.run("LAMBDA_SYNC")) is not bool(step)


def list_touched(lab: LambdaLab, *actions: str) -> set[str]:
    """Returns the aliases that calls which change a URL or a concurrency have named."""
    return {each["parameters"]["Qualifier"] for action in actions for each in lab.aws.calls(action)}


URL_CHANGES = ("CreateFunctionUrlConfig", "UpdateFunctionUrlConfig", "DeleteFunctionUrlConfig")


async def roll_back(harness: StageHarness[Lambda]) -> None:
    result = await harness.run("LAMBDA_ROLLBACK", {})
    assert succeeded(result), result


@pytest.mark.parametrize("step", ["PublishVersion", "CreateAlias", "CreateFunctionUrlConfig", ""])
async def test_an_alias_that_the_failed_commit_made_is_gone_after_the_rollback(
    lab: LambdaLab, step: str
) -> None:
    await sync_first(lab)
    before = lab.read_state()
    lab.write("v2", functionUrl={"authType": "AWS_IAM"}, provisionedConcurrency=2)
    harness = lab.deploy("v2", options=LIVE)
    await fail_after(harness, lab, step)

    await roll_back(harness)

    assert lab.read_alias("live") == {}
    assert lab.read_state() == before
    assert list_touched(lab, *URL_CHANGES) <= {"live"}


async def test_what_hangs_on_an_alias_is_removed_before_the_alias(lab: LambdaLab) -> None:
    await sync_first(lab)
    lab.write("v2", functionUrl={}, provisionedConcurrency=2)
    harness = lab.deploy("v2", options=LIVE)
    assert succeeded(await harness.run("LAMBDA_SYNC"))
    lab.aws.forget()

    await roll_back(harness)

    removed = [each["action"] for each in lab.aws.calls() if each["action"].startswith("Delete")]
    assert removed == [
        "DeleteFunctionUrlConfig",
        "DeleteProvisionedConcurrencyConfig",
        "DeleteAlias",
    ]


async def test_an_alias_that_was_there_before_gets_back_what_it_had(lab: LambdaLab) -> None:
    """It is somebody's: traffic, URL and concurrency of it are theirs."""
    await lab.sync("v0")
    await sync_first(lab)
    alias = {"FunctionName": lab.name, "Qualifier": "live"}
    lab.client.create_alias(FunctionName=lab.name, Name="live", FunctionVersion="1")
    lab.client.create_function_url_config(**alias, AuthType="AWS_IAM", Cors={"MaxAge": 60})
    lab.client.put_provisioned_concurrency_config(**alias, ProvisionedConcurrentExecutions=2)
    before = lab.read_state()
    lab.write("v2", functionUrl={"authType": "NONE"}, provisionedConcurrency=4)
    harness = lab.deploy("v2", options=LIVE)
    assert succeeded(await harness.run("LAMBDA_SYNC"))
    assert lab.read_alias("live") == {"3": 1.0}

    await roll_back(harness)

    assert lab.read_alias("live") == {"1": 1.0}
    url = lab.client.get_function_url_config(**alias)
    assert (url["AuthType"], url["Cors"]) == ("AWS_IAM", {"MaxAge": 60})
    ready = lab.client.get_provisioned_concurrency_config(**alias)
    assert ready["RequestedProvisionedConcurrentExecutions"] == 2
    assert lab.read_state() == before, "the function is what the commit that ran says"
    assert list_touched(lab, *URL_CHANGES) == {"live"}


async def test_a_commit_takes_nothing_from_an_alias_that_its_predecessor_did_not_have(
    lab: LambdaLab,
) -> None:
    """The commit that ran has a URL, at its own alias: that at the other one is somebody's."""
    await sync_first(lab, functionUrl={"authType": "NONE"}, provisionedConcurrency=2)
    lab.client.create_alias(FunctionName=lab.name, Name="live", FunctionVersion="1")
    lab.write("v2")
    lab.aws.forget()

    assert succeeded(await lab.deploy("v2", options=LIVE).run("LAMBDA_SYNC"))

    assert list_touched(lab, *URL_CHANGES, "DeleteProvisionedConcurrencyConfig") == set()


async def test_the_alias_of_the_commit_that_ran_gets_its_traffic_back(lab: LambdaLab) -> None:
    """Somebody has moved it by hand while the deployment ran."""
    await sync_first(lab)
    lab.write("v2")
    harness = lab.deploy("v2", options=LIVE)
    assert succeeded(await harness.run("LAMBDA_SYNC"))
    lab.client.update_alias(FunctionName=lab.name, Name="Service", FunctionVersion="2")

    await roll_back(harness)

    assert lab.read_alias() == {"1": 1.0}


async def test_the_code_that_comes_back_is_that_of_the_alias_of_the_commit_that_ran(
    lab: LambdaLab,
) -> None:
    """Not that of the other alias, whose version is older, nor what the tag means by now."""
    await lab.sync("v0")
    await sync_first(lab)
    lab.client.create_alias(FunctionName=lab.name, Name="live", FunctionVersion="1")
    ran = lab.read_state()["configuration"]["CodeSha256"]
    lab.write("v2")
    harness = lab.deploy("v2", options=LIVE)
    assert succeeded(await harness.run("LAMBDA_SYNC"))

    await roll_back(harness)

    assert lab.read_state()["configuration"]["CodeSha256"] == ran
    asked = {each["parameters"].get("Qualifier") for each in lab.aws.calls("GetFunction")}
    assert asked == {None, "2"}


async def test_an_alias_that_somebody_made_meanwhile_stays_and_is_named(lab: LambdaLab) -> None:
    await sync_first(lab)
    lab.write("v2")
    harness = lab.deploy("v2", options=LIVE)
    await fail_after(harness, lab, "PublishVersion")
    lab.client.create_alias(FunctionName=lab.name, Name="live", FunctionVersion="1")

    await roll_back(harness)

    assert lab.read_alias("live") == {"1": 1.0}
    assert "the alias live is left" in harness.text


async def test_a_new_alias_is_told_with_what_stays_at_the_old_one(lab: LambdaLab) -> None:
    await sync_first(lab)
    lab.write("v2")
    harness = lab.deploy("v2", options=LIVE)

    assert succeeded(await harness.run("LAMBDA_SYNC"))

    assert "the alias Service of the commit that ran stays as it is: version 1 100 %" in (
        harness.text
    )
