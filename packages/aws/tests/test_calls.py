# SPDX-License-Identifier: Apache-2.0
"""Calls to a server that speaks as AWS does: signed in, tried again, explained."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pipecd_aws import AwsAccount, AwsAccounts, AwsError, AwsRetry, AwsTarget
from pipecd_aws.sign_in import Clients
from pipecd_sdk.testing import FakeClock
from pipecd_test_support.aws.lab import AwsLab

pytestmark = pytest.mark.xdist_group("aws")

ROLE = "arn:aws:iam::123456789012:role/piped"


def make_target(options: Mapping[str, str]) -> AwsTarget:
    return AwsTarget(
        region=options["region"],
        credentials_file=options.get("credentialsFile", ""),
        endpoint_url=options["endpointUrl"],
        profile=options.get("profile", ""),
        role_arn=options.get("roleARN", ""),
        token_file=options.get("tokenFile", ""),
    )


class Told:
    """The retries that an account has told."""

    def __init__(self) -> None:
        self.retries: list[AwsRetry] = []


def open_account(lab: AwsLab, told: Told | None = None, **options: str) -> AwsAccount:
    account = AwsAccounts().get(make_target({**lab.target, **options}))
    return account.report_to(clock=FakeClock(), on_retry=(told or Told()).retries.append)


async def test_the_same_sign_in_is_made_once(lab: AwsLab) -> None:
    accounts = AwsAccounts()

    assert accounts.get(make_target(lab.target)) is accounts.get(make_target(lab.target))


def test_botocore_is_not_loaded_before_the_first_call() -> None:
    script = "import sys, pipecd_aws; sys.exit('botocore' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


async def test_a_throttled_call_is_made_again(lab: AwsLab) -> None:
    lab.break_next("DescribeClusters", "throttle", count=3)
    told = Told()

    answer = await open_account(lab, told).call("ecs", "DescribeClusters", {"clusters": ["main"]})

    assert answer["clusters"][0]["clusterName"] == "main"
    assert [each.what for each in told.retries] == ["ecs:DescribeClusters"] * 3
    assert "Rate exceeded" in told.retries[0].reason


async def test_a_registration_that_is_throttled_without_a_code_is_made_again(lab: AwsLab) -> None:
    said = "Too many concurrent attempts to create a new revision of the specified family."
    lab.break_next("RegisterTaskDefinition", "refuse", code="ClientException", message=said)
    container = {"name": "a", "image": "a", "memory": 64}

    await open_account(lab).call(
        "ecs", "RegisterTaskDefinition", {"family": "a", "containerDefinitions": [container]}
    )

    assert len(lab.calls("RegisterTaskDefinition")) == 2


async def test_throttling_without_end_is_given_up_with_its_sentence(lab: AwsLab) -> None:
    lab.break_next("DescribeClusters", "throttle", count=1000)

    with pytest.raises(AwsError, match=r"ecs:DescribeClusters: Rate exceeded"):
        await open_account(lab).call("ecs", "DescribeClusters")


async def test_a_lost_answer_is_asked_for_again_only_where_that_does_no_harm(lab: AwsLab) -> None:
    account = open_account(lab)
    lab.break_next("CreateCluster", "lost")
    await account.call("ecs", "CreateCluster", {"clusterName": "twice"})
    assert len(lab.calls("CreateCluster")) == 2

    lab.break_next("CreateCluster", "lost")
    with pytest.raises(AwsError) as found:
        await account.call("ecs", "CreateCluster", {"clusterName": "once"}, repeatable=False)

    assert found.value.is_outcome_unknown
    assert len(lab.calls("CreateCluster")) == 3


async def test_a_missing_right_is_named(lab: AwsLab) -> None:
    lab.break_next("DescribeClusters", "deny")

    with pytest.raises(AwsError) as found:
        await open_account(lab).call("ecs", "DescribeClusters")

    assert str(found.value) == (
        "arn:aws:iam::123456789012:user/piped has not the right ecs:DescribeClusters on *"
    )
    assert found.value.hint == "allow the action ecs:DescribeClusters in its IAM policy"
    assert len(lab.calls("DescribeClusters")) == 1, "it is not tried again"


async def test_what_aws_does_not_know_yet_is_asked_for_again(lab: AwsLab) -> None:
    lab.break_next("DescribeClusters", "refuse", code="ClusterNotFoundException", count=2)
    account = open_account(lab)

    await account.call("ecs", "DescribeClusters", settling=["ClusterNotFoundException"])

    lab.break_next("DescribeClusters", "refuse", code="ClusterNotFoundException")
    with pytest.raises(AwsError) as found:
        await account.call("ecs", "DescribeClusters")
    assert found.value.code == "ClusterNotFoundException"


async def test_a_server_that_is_not_there_is_told_with_what_to_check(lab: AwsLab) -> None:
    account = open_account(lab, endpointUrl="http://127.0.0.1:9")

    with pytest.raises(AwsError, match="AWS is not reached") as found:
        await account.call("ecs", "DescribeClusters")

    assert "region" in found.value.hint
    assert not found.value.is_outcome_unknown


async def test_a_missing_profile_is_told(lab: AwsLab) -> None:
    with pytest.raises(AwsError, match="nobody") as found:
        await open_account(lab, profile="nobody").call("ecs", "DescribeClusters")

    assert "credentialsFile" in found.value.hint


async def test_no_credentials_are_told(
    lab: AwsLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

    with pytest.raises(AwsError, match="there are no credentials"):
        await open_account(lab, credentialsFile=str(tmp_path / "none")).call("ecs", "ListClusters")


def write_credentials(file: Path, key: str) -> None:
    file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = x\n")


def open_aging_account(lab: AwsLab, file: Path, **options: str) -> tuple[AwsAccount, list[float]]:
    """Returns an account, and the time by which its sign-in gets old."""
    now = [0.0]
    account = open_account(lab, None, credentialsFile=str(file), **options)
    sign_in = account.clients._sign_in
    return replace(account, clients=Clients(sign_in, now=lambda: now[0])), now


@pytest.mark.parametrize("code", ["ExpiredTokenException", "UnrecognizedClientException"])
@pytest.mark.parametrize("role", ["", ROLE])
async def test_a_credentials_file_that_was_replaced_is_read_again(
    lab: AwsLab, tmp_path: Path, code: str, role: str
) -> None:
    file = tmp_path / "credentials"
    write_credentials(file, "OLD")
    account, now = open_aging_account(lab, file, roleARN=role)
    await account.call("ecs", "ListClusters")
    lab.forget()
    write_credentials(file, "NEW")
    lab.break_next("ListClusters", "refuse", code=code, count=1)
    now[0] = 3600.0

    await account.call("ecs", "ListClusters")

    asked = lab.calls("AssumeRole") if role else lab.calls("ListClusters")
    assert asked[-1]["key"] == "NEW"


async def test_credentials_that_stay_wrong_are_not_read_again_and_again(
    lab: AwsLab, tmp_path: Path
) -> None:
    file = tmp_path / "credentials"
    write_credentials(file, "OLD")
    account, now = open_aging_account(lab, file)
    await account.call("ecs", "ListClusters")
    lab.forget()
    lab.break_next("ListClusters", "refuse", code="ExpiredTokenException", count=10)
    now[0] = 3600.0

    for _ in range(3):
        with pytest.raises(AwsError, match="have expired"):
            await account.call("ecs", "ListClusters")

    assert account.clients.generation == 1
    assert len(lab.calls("ListClusters")) == 4


async def test_credentials_that_come_later_are_found(
    lab: AwsLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    file = tmp_path / "credentials"
    account, now = open_aging_account(lab, file)
    with pytest.raises(AwsError, match="there are no credentials"):
        await account.call("ecs", "ListClusters")
    write_credentials(file, "NEW")
    now[0] = 3600.0

    await account.call("ecs", "ListClusters")

    assert lab.calls("ListClusters")[-1]["key"] == "NEW"


@pytest.mark.parametrize("by", ["token", "credentials"])
async def test_a_role_is_taken_on(lab: AwsLab, tmp_path: Path, by: str) -> None:
    token = tmp_path / "token"
    token.write_text("a.web.token")
    more = {"tokenFile": str(token)} if by == "token" else {}
    account = open_account(lab, None, roleARN=ROLE, **more)

    await account.call("ecs", "DescribeClusters")

    wanted = "AssumeRoleWithWebIdentity" if by == "token" else "AssumeRole"
    [call] = lab.calls(wanted)
    assert call["parameters"]["RoleArn"] == ROLE
    assert call["parameters"]["RoleSessionName"] == "piped"
    assert call["parameters"].get("WebIdentityToken") == ("a.web.token" if by == "token" else None)


async def test_all_pages_of_a_list_are_read(lab: AwsLab) -> None:
    for number in range(3):
        lab.ecs.register_task_definition(
            family=f"page-{number}",
            containerDefinitions=[{"name": "a", "image": "a", "memory": 64}],
        )
    account = open_account(lab)

    found = [
        arn
        async for arn in account.list_all(
            "ecs", "ListTaskDefinitions", {"maxResults": 1}, items="taskDefinitionArns"
        )
    ]

    assert len(found) >= 3


class SlowClients(Clients):
    """A service that answers when the test says so."""

    def __init__(self) -> None:
        self.called, self.may_answer = threading.Event(), threading.Event()
        self.is_done = False

    def get(self, service: str) -> "SlowClients":
        return self

    def create_cluster(self) -> dict[str, str]:
        self.called.set()
        assert self.may_answer.wait(30)
        self.is_done = True
        return {}

    list_clusters = create_cluster


@pytest.mark.parametrize("operation", ["CreateCluster", "ListClusters"])
async def test_a_cancelled_stage_waits_for_a_call_that_changes_something(
    lab: AwsLab, operation: str
) -> None:
    slow = SlowClients()
    account = replace(open_account(lab), clients=slow)
    doing = asyncio.create_task(account.call("ecs", operation))
    await asyncio.to_thread(slow.called.wait, 30)

    doing.cancel()
    done, _ = await asyncio.wait([doing], timeout=0.2)

    assert bool(done) is (operation == "ListClusters")
    slow.may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await doing
    assert slow.is_done or operation == "ListClusters"


async def test_what_botocore_refuses_names_the_field_and_no_value(lab: AwsLab) -> None:
    with pytest.raises(AwsError) as found:
        await open_account(lab).call("ecs", "DescribeClusters", {"clusters": {"hush": 1}})

    assert "clusters" in str(found.value)
    assert "hush" not in str(found.value)
