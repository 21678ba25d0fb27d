# SPDX-License-Identifier: Apache-2.0
"""Failures at each step, and the rollback after them: everything is as it was before."""

import io
import json
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk.testing import StageHarness
from pipecd_test_support.aws.lambda_lab import LambdaLab, succeeded
from pipecd_test_support.git_http import GitHost

pytestmark = pytest.mark.xdist_group("lambda")

OLD = {"environments": {"LEVEL": "info"}, "tags": {"team": "shop"}, "memory": 256}
NEW = {
    "environments": {"LEVEL": "debug", "MORE": "1"},
    "tracingConfig": {"mode": "Active"},
    "tags": {"team": "store", "new": "1"},
    "timeout": 30,
}
STEPS = [
    "UpdateFunctionConfiguration",
    "UpdateFunctionCode",
    "TagResource",
    "PublishVersion",
    "UpdateAlias",
]


async def roll_back(harness: StageHarness[Any]) -> None:
    result = await harness.run("LAMBDA_ROLLBACK", {})
    assert succeeded(result), result


@pytest.mark.parametrize("step", STEPS)
async def test_a_sync_that_fails_at_any_step_is_undone(lab: LambdaLab, step: str) -> None:
    await lab.sync("v1", **OLD)
    before = lab.read_state()
    lab.write("v2", **NEW)
    harness = lab.deploy("v2")
    lab.aws.break_next(step, "refuse", code="InvalidParameterValueException", message="no")

    failed = await harness.run("LAMBDA_SYNC")
    await roll_back(harness)

    assert f"lambda:{step}: no" in failed.reason
    assert lab.read_state() == before


async def test_what_others_have_set_and_the_failed_commit_took_over_comes_back(
    lab: LambdaLab,
) -> None:
    """The commit that ran does not name the fields: their values are those of its version."""
    await lab.sync("v1")
    by_hand = {"TracingConfig": {"Mode": "Active"}, "EphemeralStorage": {"Size": 1024}}
    lab.client.update_function_configuration(FunctionName=lab.name, **by_hand)
    await lab.sync("v2")
    before = lab.read_state()
    lab.write("v3", tracingConfig={"mode": "PassThrough"}, ephemeralStorage={"size": 2048})
    harness = lab.deploy("v3")
    assert succeeded(await harness.run("LAMBDA_SYNC"))

    await roll_back(harness)

    assert lab.read_state() == before
    assert before["configuration"]["EphemeralStorage"] == {"Size": 1024}


async def test_concurrency_and_url_that_others_have_set_come_back(lab: LambdaLab) -> None:
    """The commit that ran names none of them, and versions do not have them.

    The stage is called twice: what it notes is from before its first change.
    """
    await lab.sync("v1")
    alias = {"FunctionName": lab.name, "Qualifier": "Service"}
    lab.client.put_function_concurrency(FunctionName=lab.name, ReservedConcurrentExecutions=5)
    lab.client.create_function_url_config(**alias, AuthType="AWS_IAM", Cors={"MaxAge": 60})
    lab.client.put_provisioned_concurrency_config(**alias, ProvisionedConcurrentExecutions=2)
    lab.write(
        "v2",
        reservedConcurrency=9,
        provisionedConcurrency=4,
        functionUrl={"authType": "NONE", "cors": {"allowOrigins": ["*"]}},
    )
    harness = lab.deploy("v2")
    lab.aws.break_next("PublishVersion", "refuse", code="InvalidParameterValueException")
    assert not succeeded(await harness.run("LAMBDA_SYNC"))
    assert succeeded(await harness.run("LAMBDA_SYNC"))

    await roll_back(harness)

    reserved = lab.client.get_function_concurrency(FunctionName=lab.name)
    assert reserved["ReservedConcurrentExecutions"] == 5
    url = lab.client.get_function_url_config(**alias)
    assert (url["AuthType"], url["Cors"]) == ("AWS_IAM", {"MaxAge": 60})
    ready = lab.client.get_provisioned_concurrency_config(**alias)
    assert ready["RequestedProvisionedConcurrentExecutions"] == 2


async def test_options_that_nobody_had_set_are_taken_back(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.write("v2", reservedConcurrency=9, provisionedConcurrency=4, functionUrl={})
    harness = lab.deploy("v2")
    assert succeeded(await harness.run("LAMBDA_SYNC"))

    await roll_back(harness)

    for taken in (
        "DeleteFunctionConcurrency",
        "DeleteFunctionUrlConfig",
        "DeleteProvisionedConcurrencyConfig",
    ):
        assert len(lab.aws.calls(taken)) == 1


async def test_the_rules_of_a_url_for_other_origins_are_taken_back(lab: LambdaLab) -> None:
    """AWS leaves them as they are unless it is told that there are none."""
    await lab.sync("v1", functionUrl={"authType": "NONE"})
    lab.write("v2", functionUrl={"authType": "NONE", "cors": {"maxAge": 60}})
    harness = lab.deploy("v2")
    assert succeeded(await harness.run("LAMBDA_SYNC"))
    url = lab.client.get_function_url_config(FunctionName=lab.name, Qualifier="Service")
    assert url["Cors"] == {"MaxAge": 60}

    await roll_back(harness)

    assert lab.aws.calls("UpdateFunctionUrlConfig")[-1]["parameters"]["Cors"] == {}


async def test_notes_of_an_earlier_release_are_read(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.write("v2", reservedConcurrency=9)
    harness = lab.deploy("v2")
    assert succeeded(await harness.run("LAMBDA_SYNC"))
    kept = json.loads(harness.deployment_metadata["lambda/main"])
    for key in ("original-options", "begun"):
        del kept[key]
    harness.deployment_metadata["lambda/main"] = json.dumps(kept)

    await roll_back(harness)

    assert lab.read_state()["image"] == "shop:v1"


@pytest.mark.parametrize("percents", [(), (10,), (10, 50), (100,)])
async def test_a_canary_is_undone_wherever_it_stopped(
    lab: LambdaLab, percents: tuple[int, ...]
) -> None:
    await lab.sync("v1", **OLD)
    before = lab.read_state()
    lab.write("v2", **NEW)
    harness = lab.deploy("v2")
    await harness.run("LAMBDA_CANARY_ROLLOUT", {})
    for percent in percents:
        assert succeeded(await harness.run("LAMBDA_PROMOTE", {"percent": percent}, index=1))

    await roll_back(harness)

    assert lab.read_state() == before


async def test_a_split_that_was_there_before_is_restored_word_for_word(lab: LambdaLab) -> None:
    await lab.sync("v1")
    await lab.sync("v2")
    split = {"FunctionVersion": "2", "RoutingConfig": {"AdditionalVersionWeights": {"1": 0.3}}}
    lab.client.update_alias(FunctionName=lab.name, Name="Service", **split)
    lab.write("v3")
    harness = lab.deploy("v3")
    await harness.run("LAMBDA_SYNC")
    assert lab.read_alias() == {"3": 1.0}

    await roll_back(harness)

    assert lab.read_alias() == {"2": 0.7, "1": 0.3}


async def test_url_and_provisioned_concurrency_come_back(lab: LambdaLab) -> None:
    await lab.sync("v1", provisionedConcurrency=2, functionUrl={"authType": "NONE"})
    lab.write("v2")
    harness = lab.deploy("v2")
    await harness.run("LAMBDA_SYNC")
    assert lab.aws.calls("DeleteProvisionedConcurrencyConfig")

    await roll_back(harness)

    kept = lab.client.get_provisioned_concurrency_config(FunctionName=lab.name, Qualifier="Service")
    assert kept["RequestedProvisionedConcurrentExecutions"] == 2
    assert lab.client.get_function_url_config(FunctionName=lab.name)["AuthType"] == "NONE"


async def test_a_rollback_may_be_repeated(lab: LambdaLab) -> None:
    await lab.sync("v1", **OLD)
    before = lab.read_state()
    lab.write("v2", **NEW)
    harness = lab.deploy("v2")
    await harness.run("LAMBDA_SYNC")

    await roll_back(harness)
    await roll_back(harness)

    assert lab.read_state() == before
    assert lab.list_versions() == ["1", "2"]


async def test_a_retry_after_the_rollback_deploys_again(lab: LambdaLab) -> None:
    await lab.sync("v1", **OLD)
    lab.write("v2", **NEW)
    harness = lab.deploy("v2")
    await harness.run("LAMBDA_SYNC")
    await roll_back(harness)

    assert succeeded(await harness.run("LAMBDA_SYNC"))

    assert lab.read_state()["image"] == "shop:v2"
    assert lab.read_alias() == {"3": 1.0}


async def test_a_deployment_that_changed_nothing_has_nothing_to_undo(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.write("v2", role="")
    harness = lab.deploy("v2")
    lab.aws.forget()

    failed = await harness.run("LAMBDA_SYNC")
    await roll_back(harness)

    assert "spec.role" in failed.reason
    assert lab.aws.calls() == []


async def test_a_first_deployment_has_nothing_to_go_back_to(lab: LambdaLab) -> None:
    lab.write("v1")
    harness = lab.deploy("v1")
    await harness.run("LAMBDA_SYNC")

    result = await harness.run("LAMBDA_ROLLBACK", {})

    assert "there is no earlier deployment to go back to" in result.reason


def make_zip(text: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("index.py", text)
    return made.getvalue()


async def test_an_object_in_s3_that_was_replaced_does_not_come_back_with_the_rollback(
    lab: LambdaLab,
) -> None:
    """The place is the same in both commits: what ran is only in the version."""
    s3 = lab.aws.make_client("s3")
    bucket = f"code-{lab.name}"
    s3.create_bucket(
        Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    place = {"s3Bucket": bucket, "s3Key": "code.zip", "handler": "a.b", "runtime": "python3.12"}
    s3.put_object(Bucket=bucket, Key="code.zip", Body=make_zip("old"))
    await lab.sync("v1", **place)
    before = lab.read_state()
    s3.put_object(Bucket=bucket, Key="code.zip", Body=make_zip("new"))
    lab.write("v2", **place)
    harness = lab.deploy("v2")
    await harness.run("LAMBDA_SYNC")
    assert lab.read_state()["configuration"]["CodeSha256"] != before["configuration"]["CodeSha256"]

    await roll_back(harness)

    assert lab.read_state() == before


def run_git(folder: Path, *arguments: str) -> None:
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(
        ["git", *settings, "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        timeout=60,
    )


def push(folder: Path, remote: str, files: Mapping[str, str]) -> None:
    if not folder.exists():
        folder.mkdir()
        run_git(folder, "init", "-q", "-b", "main")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-qm", "code")
    run_git(folder, "push", "-q", remote, "HEAD:main")


async def test_a_function_of_a_git_source_is_built_and_rolled_back(
    lab: LambdaLab, tmp_path: Path
) -> None:
    """Upstream's rollback of these updates the code with no package, and fails."""
    (tmp_path / "host").mkdir()
    with GitHost(tmp_path / "host").serving() as host:
        remote = host.make_repository("code.git")
        push(tmp_path / "work", remote, {"app/index.py": "old", "other": "x"})
        spec = {
            "source": {"git": remote, "ref": "main", "path": "app"},
            "handler": "app/index.handle",
            "runtime": "python3.12",
        }
        allowed = {"allowedHosts": ["127.0.0.1"]}
        lab.write("v1", **spec)
        assert succeeded(await lab.deploy("v1", config=allowed).run("LAMBDA_SYNC"))
        lab.running = "v1"
        before = lab.read_state()
        location = lab.client.get_function(FunctionName=lab.name)["Code"]["Location"]
        push(tmp_path / "work", remote, {"app/index.py": "new"})
        lab.write("v2", **spec)
        harness = lab.deploy("v2", config=allowed)
        assert succeeded(await harness.run("LAMBDA_SYNC"))

        await roll_back(harness)

    assert lab.read_state() == before
    assert "app/index.py" in _list_names(location)


def _list_names(location: str) -> list[str]:
    import urllib.request  # noqa: PLC0415 - one test needs it

    with urllib.request.urlopen(location, timeout=30) as answer:  # noqa: S310 - the lab's
        return zipfile.ZipFile(io.BytesIO(answer.read())).namelist()


async def test_a_source_on_a_private_host_is_refused(lab: LambdaLab) -> None:
    spec = {"source": {"git": "http://127.0.0.1:9/x", "ref": "main"}}
    lab.write("v1", **spec, handler="a.b", runtime="python3.12")

    result = await lab.deploy("v1").run("LAMBDA_SYNC")

    assert "127.0.0.1 is not an allowed host" in result.reason
    assert "allowedHosts" in result.reason
