# SPDX-License-Identifier: Apache-2.0
"""The record of a deployment, complete for whoever checks it."""

from pipecd_test_support.trigger_bench import NOW, WEB, Bench, application, application_file
from pipecd_wire.model.deployment_pb2 import DEPLOYMENT_PENDING
from pipecd_wire.rpc import validation


async def test_the_record_is_complete_for_whoever_checks_it(bench: Bench) -> None:
    bench.remote.commit(
        {
            "apps/web/app.pipecd.yaml": application_file(
                "web", notification="{mentions: [{event: '*', slack: [bob]}]}"
            )
        },
        "Roll out\n\nPipecd-Dev-Trace-Trigger-Commit-Hash: abc\n",
    )
    full = application("web", labels={"team": "a"}, platform_provider="old")
    full.deploy_targets_by_plugin["kubernetes"].deploy_targets.append("dev")

    async with bench.running(full):
        await bench.desk.until(lambda: bool(bench.desk.created))

    (made,) = bench.desk.created
    assert validation.check(made) is None
    assert validation.check(bench.desk.last["web"]) is None
    assert made.trigger.commit.message == "Roll out"
    assert made.trigger.commit.author == "Ada"
    assert made.trigger.commit.branch == "main"
    assert made.status == DEPLOYMENT_PENDING
    assert made.labels == {"team": "a"}
    assert made.platform_provider == "old"
    assert list(made.deploy_targets_by_plugin["kubernetes"].deploy_targets) == ["dev"]
    assert made.git_path == full.git_path
    assert made.deployment_trace_commit_hash == "abc"
    assert '"event":"*"' in made.metadata_v2.shared.keyValues["DeploymentNotification"]
    assert made.created_at == made.updated_at == made.trigger.timestamp == NOW


async def test_a_commit_without_message_and_author_makes_a_valid_record(bench: Bench) -> None:
    bench.remote.git(
        "commit",
        "--quiet",
        "--allow-empty",
        "--allow-empty-message",
        "--message=",
        env={"GIT_AUTHOR_DATE": "1970-01-01T00:00:00Z", "GIT_AUTHOR_NAME": "x"},
    )
    async with bench.running(WEB):
        await bench.desk.until(lambda: bool(bench.desk.created))

    assert validation.check(bench.desk.created[0]) is None


async def test_the_labels_are_those_of_the_file_at_the_commit(bench: Bench) -> None:
    """An application that was just registered: scripts and roles find its labels at once."""
    file = application_file("web", labels="{team: product}")
    bench.remote.commit({"apps/web/app.pipecd.yaml": file}, "Say who we are")

    async with bench.running(application("web", labels={"team": "a", "old": "yes"})):
        await bench.desk.until(lambda: bool(bench.desk.created))

    assert bench.desk.created[0].labels == {"team": "product"}


async def test_the_deploy_targets_are_those_of_the_file_at_the_commit(bench: Bench) -> None:
    """A plugin that the file does not name keeps the targets it was registered with."""
    file = application_file("web", deployTargets="{kubernetes: [prod, eu]}")
    bench.remote.commit({"apps/web/app.pipecd.yaml": file}, "Say where to")
    registered = application("web")
    registered.deploy_targets_by_plugin["kubernetes"].deploy_targets.append("dev")
    registered.deploy_targets_by_plugin["files"].deploy_targets.append("east")

    async with bench.running(registered):
        await bench.desk.until(lambda: bool(bench.desk.created))

    chosen = bench.desk.created[0].deploy_targets_by_plugin
    assert {name: list(each.deploy_targets) for name, each in chosen.items()} == {
        "kubernetes": ["prod", "eu"],
        "files": ["east"],
    }
