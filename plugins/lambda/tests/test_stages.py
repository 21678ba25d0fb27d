# SPDX-License-Identifier: Apache-2.0
"""Every stage against a server that speaks as AWS Lambda does; its gaps are in `lambda_plane`."""

from typing import Any

import pytest

from pipecd_test_support.aws.lambda_lab import LambdaLab, succeeded

pytestmark = pytest.mark.xdist_group("lambda")

WHOLE = {
    "environments": {"LEVEL": "info"},
    "tags": {"team": "shop"},
    "ephemeralStorage": {"size": 1024},
    "deadLetterConfig": {"targetArn": "arn:aws:sqs:eu-central-1:123456789012:dead"},
    "tracingConfig": {"mode": "Active"},
    "loggingConfig": {"logFormat": "JSON"},
    "description": "sells",
    "architectures": [{"name": "arm64"}],
    "vpcConfig": {"securityGroupIds": ["sg-1"], "subnetIds": ["subnet-1"]},
    "provisionedConcurrency": 3,
    "reservedConcurrency": 7,
    "functionUrl": {"authType": "NONE", "cors": {"allowOrigins": ["*"]}},
}


async def test_a_first_sync_makes_function_alias_and_tags(lab: LambdaLab) -> None:
    lab.write("v1")
    harness = lab.deploy("v1")

    result = await harness.run("LAMBDA_SYNC")

    assert succeeded(result), result
    state = lab.read_state()
    assert state["alias"] == {"1": 1.0}
    assert state["image"] == "shop:v1"
    assert state["tags"] == {
        "pipecd-dev-managed-by": "piped",
        "pipecd-dev-piped": "piped-1",
        "pipecd-dev-application": "application-1",
        "pipecd-dev-commit-hash": harness.deployment.commit.hash,
    }


async def test_every_field_of_the_manifest_reaches_the_function(lab: LambdaLab) -> None:
    await lab.sync("v1", **WHOLE)

    shown = lab.read_state()["configuration"]
    assert shown["Environment"] == {"Variables": {"LEVEL": "info"}}
    assert shown["DeadLetterConfig"]["TargetArn"].endswith(":dead")
    assert shown["TracingConfig"] == {"Mode": "Active"}
    assert shown["LoggingConfig"] == {"LogFormat": "JSON"}
    assert shown["EphemeralStorage"] == {"Size": 1024}
    assert shown["Architectures"] == ["arm64"]
    assert shown["VpcConfig"]["SubnetIds"] == ["subnet-1"]
    assert shown["Description"] == "sells"
    url = lab.aws.calls("CreateFunctionUrlConfig")[-1]["parameters"]
    assert (url["Qualifier"], url["AuthType"]) == ("Service", "NONE")
    kept = lab.client.get_provisioned_concurrency_config(FunctionName=lab.name, Qualifier="Service")
    assert kept["RequestedProvisionedConcurrentExecutions"] == 3
    reserved = lab.client.get_function_concurrency(FunctionName=lab.name)
    assert reserved["ReservedConcurrentExecutions"] == 7


async def test_fields_that_are_gone_from_git_are_taken_back(lab: LambdaLab) -> None:
    await lab.sync("v1", **WHOLE)

    await lab.sync("v2")

    shown = lab.read_state()["configuration"]
    assert not (shown["Environment"] or {}).get("Variables")
    assert shown["DeadLetterConfig"] == {"TargetArn": ""}
    assert shown["TracingConfig"] == {"Mode": "PassThrough"}
    assert "team" not in lab.read_state()["tags"]
    assert len(lab.aws.calls("DeleteFunctionUrlConfig")) == 1
    assert len(lab.aws.calls("DeleteProvisionedConcurrencyConfig")) == 1
    assert len(lab.aws.calls("DeleteFunctionConcurrency")) == 1


async def test_what_others_have_set_and_git_never_had_stays(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.client.update_function_configuration(
        FunctionName=lab.name, TracingConfig={"Mode": "Active"}
    )
    arn = lab.client.get_function(FunctionName=lab.name)["Configuration"]["FunctionArn"]
    lab.client.tag_resource(Resource=arn, Tags={"cost": "42"})

    await lab.sync("v2")

    assert lab.read_state()["configuration"]["TracingConfig"] == {"Mode": "Active"}
    assert lab.read_state()["tags"]["cost"] == "42"


async def test_a_canary_gets_its_shares_up_to_all(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.write("v2")
    harness = lab.deploy("v2")

    assert succeeded(await harness.run("LAMBDA_CANARY_ROLLOUT", {}))
    assert lab.read_alias() == {"1": 1.0}
    for percent, shares in (
        (10, {"2": 0.1, "1": 0.9}),
        (50, {"2": 0.5, "1": 0.5}),
        ("100%", {"2": 1.0}),
    ):
        result = await harness.run("LAMBDA_PROMOTE", {"percent": percent}, index=1)
        assert succeeded(result), result
        assert lab.read_alias() == shares
    assert harness.metadata["promote-percentage"] == "100"
    assert lab.list_versions() == ["1", "2"]


async def test_an_alias_of_another_name(lab: LambdaLab) -> None:
    lab.write("v1")

    result = await lab.deploy("v1", options={"input": {"alias": "live"}}).run("LAMBDA_SYNC")

    assert succeeded(result)
    assert lab.read_alias("live") == {"1": 1.0}
    assert lab.read_alias() == {}


async def test_the_first_version_ever_may_be_promoted_by_any_share(lab: LambdaLab) -> None:
    """Upstream takes nothing but 100 there."""
    lab.write("v1")
    harness = lab.deploy("v1")
    await harness.run("LAMBDA_CANARY_ROLLOUT", {})

    result = await harness.run("LAMBDA_PROMOTE", {"percent": 10}, index=1)

    assert succeeded(result)
    assert lab.read_alias() == {"1": 1.0}
    assert "no version to share with" in harness.text


@pytest.mark.parametrize("options", [{}, {"percent": 0}, {"percent": "0%"}])
async def test_a_promotion_without_a_share_leaves_the_traffic(
    lab: LambdaLab, options: dict[str, Any]
) -> None:
    """A share of nothing is what upstream has without one."""
    await lab.sync("v1")
    lab.write("v2")
    harness = lab.deploy("v2")
    assert harness.faults(("LAMBDA_PROMOTE", options)) == []
    await harness.run("LAMBDA_CANARY_ROLLOUT", {})

    assert succeeded(await harness.run("LAMBDA_PROMOTE", options, index=1))

    assert lab.read_alias() == {"1": 1.0}
    assert lab.aws.calls("UpdateAlias") == []


async def test_a_canary_that_gets_nothing_any_more_gives_its_share_back(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.write("v2")
    harness = lab.deploy("v2")
    await harness.run("LAMBDA_CANARY_ROLLOUT", {})
    assert succeeded(await harness.run("LAMBDA_PROMOTE", {"percent": 10}, index=1))

    assert succeeded(await harness.run("LAMBDA_PROMOTE", {"percent": 0}, index=2))

    assert lab.read_alias() == {"1": 1.0}
    sent = lab.aws.calls("UpdateAlias")[-1]["parameters"]
    assert (sent["FunctionVersion"], sent["RoutingConfig"]["AdditionalVersionWeights"]) == ("1", {})


async def test_a_first_version_without_a_share_makes_no_alias(lab: LambdaLab) -> None:
    lab.write("v1")
    harness = lab.deploy("v1")
    await harness.run("LAMBDA_CANARY_ROLLOUT", {})

    assert succeeded(await harness.run("LAMBDA_PROMOTE", {}, index=1))

    assert lab.read_alias() == {}


async def test_promoting_what_was_not_published_is_refused(lab: LambdaLab) -> None:
    lab.write("v1")

    result = await lab.deploy("v1").run("LAMBDA_PROMOTE", {"percent": 10})

    assert "put LAMBDA_CANARY_ROLLOUT before" in result.reason


async def test_the_stage_waits_and_tells_how_it_goes(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.write("v2")
    lab.aws.slow_down(looks=15)
    harness = lab.deploy("v2")

    result = await harness.run("LAMBDA_SYNC")

    assert succeeded(result), result
    assert "waiting: the function is being updated" in harness.text


async def test_a_function_that_is_never_ready_fails_at_its_deadline(lab: LambdaLab) -> None:
    lab.write("v1")
    lab.aws.slow_down(looks=100_000)
    harness = lab.deploy("v1", options={"input": {"updateTimeout": "40s"}})

    result = await harness.run("LAMBDA_SYNC")

    assert "the function was not ready within 40s" in result.reason
    assert "input.updateTimeout" in result.reason


async def test_a_change_that_aws_cannot_make_fails_with_its_reason(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.write("v2")
    harness = lab.deploy("v2")
    lab.aws.fail_next_change("the image has no entry point")

    result = await harness.run("LAMBDA_SYNC")

    assert "the image has no entry point (InvalidImage)" in result.reason
    assert lab.read_alias() == {"1": 1.0}


async def test_a_missing_right_is_named(lab: LambdaLab) -> None:
    lab.write("v1")
    lab.aws.break_next("CreateFunction", "deny", service="lambda")

    result = await lab.deploy("v1").run("LAMBDA_SYNC")

    assert "has not the right lambda:CreateFunction" in result.reason


async def test_throttling_is_told_and_outlived(lab: LambdaLab) -> None:
    lab.write("v1")
    lab.aws.break_next("PublishVersion", "throttle", count=2)
    harness = lab.deploy("v1")

    assert succeeded(await harness.run("LAMBDA_SYNC"))
    assert "lambda:PublishVersion: Rate exceeded" in harness.text


async def test_an_unknown_field_is_told_and_left_out(lab: LambdaLab) -> None:
    lab.write("v1", tracingConfg={"mode": "Active"})
    harness = lab.deploy("v1")

    assert succeeded(await harness.run("LAMBDA_SYNC"))
    assert "no field 'tracingConfg'" in harness.text


async def test_a_function_of_upstream_is_taken_over(lab: LambdaLab) -> None:
    lab.client.create_function(
        FunctionName=lab.name,
        Role="arn:aws:iam::123456789012:role/function",
        PackageType="Image",
        Code={"ImageUri": "shop:old"},
        Tags={"pipecd-dev-managed-by": "piped", "pipecd-dev-application": "older"},
    )
    lab.write("v1")
    harness = lab.deploy("v1")

    assert succeeded(await harness.run("LAMBDA_SYNC"))
    assert lab.read_state()["tags"]["pipecd-dev-application"] == "application-1"
    assert "that of the application older: it is taken over" in harness.text


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"role": ""}, "spec.role must be given"),
        ({"name": "../other"}, "spec.name is not the name of a function: '../other'"),
        ({"name": "shop/aliases/live"}, "spec.name is not the name of a function"),
        ({"name": "-shop\n"}, "spec.name is not the name of a function"),
        ({"name": ["shop"]}, "spec.name is not the name of a function"),
        ({"timeout": 901}, "spec.timeout must be a number, 1 to 900"),
        ({"ephemeralStorage": {"size": 100}}, "spec.ephemeralStorage.size"),
        ({"architectures": [{"name": "risc"}]}, "neither x86_64 nor arm64"),
        ({"image": ""}, "spec has no code"),
        ({"source": {"git": "https://x/y", "ref": "v1", "path": "../z"}}, "leads out"),
        ({"memory": "much"}, "spec.memory must be a number"),
        ({"tags": {"pipecd-dev-piped": "x"}}, "PipeCD's own"),
        ({"environments": "A=b"}, "spec.environments must be an object"),
        ({"layers": {"a": 1}}, "spec.layers must be a list"),
    ],
)
async def test_a_wrong_manifest_is_told_before_aws_is_asked(
    lab: LambdaLab, spec: dict[str, Any], said: str
) -> None:
    lab.write("v1", **spec)

    result = await lab.deploy("v1").run("LAMBDA_SYNC")

    assert said in result.reason
    assert lab.aws.calls() == []


@pytest.mark.parametrize("percent", [-1, 101, "many"])
def test_a_wrong_share_is_refused_when_it_is_planned(lab: LambdaLab, percent: Any) -> None:
    lab.write("v1")

    assert lab.deploy("v1").faults(("LAMBDA_PROMOTE", {"percent": percent}))


def test_shares_are_shown_beside_the_stages(lab: LambdaLab) -> None:
    lab.write("v1")

    planned = lab.deploy("v1").plan(
        ("LAMBDA_CANARY_ROLLOUT", {}), ("LAMBDA_PROMOTE", {"percent": 10})
    )

    assert [each.name for each in planned] == [
        "LAMBDA_CANARY_ROLLOUT",
        "LAMBDA_PROMOTE",
        "LAMBDA_ROLLBACK",
    ]
    assert planned[1].metadata == {"pipecd/stage-display-metadata": "10% of the traffic"}
