# SPDX-License-Identifier: Apache-2.0
"""Commits and commands become deployments, exactly those that should."""

from pathlib import Path
from typing import Any

import pytest
from trigger_support import NOW, Bench, application, application_file, sync

from pipecd_model.errors import ConfigError, UnavailableError
from pipecd_wire.model import common_pb2
from pipecd_wire.model.application_pb2 import (
    INVALID_CONFIG,
    SYNCED,
    UNKNOWN,
    ApplicationSyncState,
)
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import DEPLOYMENT_PENDING
from pipecd_wire.rpc import validation
from piped.mirror.mirror import Change, GitHint
from piped.trigger.standings import GIT_AWAY

WEB, WITNESS = application("web"), application("witness")


def head(bench: Bench) -> str:
    return str(bench.remote.git("rev-parse", "main"))


async def test_an_application_that_was_never_deployed_is(bench: Bench) -> None:
    async with bench.running(WEB):
        await bench.desk.until(lambda: bool(bench.desk.created))

    (deployment,) = bench.desk.created
    assert bench.handed == [deployment]
    assert deployment.application_id == "web"
    assert deployment.trigger.commit.hash == head(bench)
    assert deployment.status_reason == "the application was never deployed"
    assert bench.desk.last["web"].deployment_id == deployment.id


async def test_a_commit_deploys_the_applications_that_it_touches_and_no_other(bench: Bench) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        one = bench.push({"README": "x"})
        await bench.witnessed(one)
        two = bench.push({"apps/web/main.py": "x"})
        await bench.witnessed(two)

    assert [commit for name, commit in bench.desk.deployed() if name == "web"][1:] == [two]


async def test_the_reason_names_the_file(bench: Bench) -> None:
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        commit = bench.remote.commit({"apps/web/main.py": "x"})
        await bench.desk.until(lambda: len(bench.desk.created) == 2)

    reason = bench.desk.created[1].status_reason
    assert reason == f"the commit {commit[:7]} changes apps/web/main.py"


async def test_an_ignored_file_does_not_hide_a_real_one_beside_it(bench: Bench) -> None:
    ignores = "{onCommit: {ignores: ['**/*.md']}}"
    bench.push({"apps/web/app.pipecd.yaml": application_file("web", trigger=ignores)})
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        only = bench.push({"apps/web/README.md": "1"})
        await bench.witnessed(only)
        both = bench.push({"apps/web/README.md": "2", "apps/web/main.py": "2"})
        await bench.witnessed(both)

    deployed = [commit for name, commit in bench.desk.deployed() if name == "web"]
    assert only not in deployed
    assert both in deployed


async def test_files_elsewhere_that_an_application_names_are_its_own(bench: Bench) -> None:
    paths = "{onCommit: {paths: [shared]}}"
    bench.push({"apps/web/app.pipecd.yaml": application_file("web", trigger=paths)})
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        commit = bench.push({"shared/base.yaml": "x"})
        await bench.witnessed(commit)

    assert ("web", commit) in bench.desk.deployed()


async def test_an_application_that_does_not_deploy_on_commits_does_not(bench: Bench) -> None:
    disabled = "{onCommit: {disabled: true}}"
    bench.push({"apps/web/app.pipecd.yaml": application_file("web", trigger=disabled)})
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.push({"apps/web/x": "1"}))

    assert "web" not in [name for name, _ in bench.desk.deployed()]


async def test_a_restarted_piped_deploys_nothing_twice_and_misses_nothing(bench: Bench) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
    missed = bench.push({"apps/web/x": "while nobody looked"})
    untouched = bench.push({"README": "x"})

    async with bench.running(WEB, WITNESS):
        await bench.witnessed(untouched)

    web = [commit for name, commit in bench.desk.deployed() if name == "web"]
    assert len(web) == 2
    assert web[1] == untouched
    assert missed not in web  # the newest is deployed, not each one on the way


async def test_what_is_known_of_the_last_deployment_need_not_be_asked(bench: Bench) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
    questions = bench.desk.questions
    known = application("web", most_recently_triggered_deployment=bench.desk.last["web"])
    witness = application("witness", most_recently_triggered_deployment=bench.desk.last["witness"])

    async with bench.running(known, witness):
        await bench.witnessed(bench.push({}))

    assert bench.desk.questions == questions
    assert [name for name, _ in bench.desk.deployed()].count("web") == 1


async def test_a_commit_that_touches_nothing_is_compared_on_from_there(bench: Bench) -> None:
    """However far the last deployment is back, what was compared once is not compared again."""
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        for number in range(3):
            await bench.witnessed(bench.push({"README": str(number)}))
        touching = bench.push({"apps/web/x": "1"})
        await bench.witnessed(touching)
        reverted = bench.push({"apps/web/x": None})
        await bench.witnessed(reverted)

    web = [commit for name, commit in bench.desk.deployed() if name == "web"]
    assert web[1:] == [touching, reverted]


async def test_a_branch_that_goes_back_and_forth_is_deployed_each_time(bench: Bench) -> None:
    first = head(bench)
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        second = bench.remote.commit({"apps/web/x": "1"})
        await bench.desk.until(lambda: len(bench.desk.created) == 2)
        bench.remote.git("reset", "--quiet", "--hard", first)
        await bench.desk.until(lambda: len(bench.desk.created) == 3)
        bench.remote.git("reset", "--quiet", "--hard", second)
        await bench.desk.until(lambda: len(bench.desk.created) == 4)

    assert [commit for _, commit in bench.desk.deployed()] == [first, second, first, second]
    assert len({each.id for each in bench.desk.created}) == 4


async def test_an_application_that_is_registered_later_is_deployed_at_once(bench: Bench) -> None:
    async with bench.running(WITNESS):
        await bench.witnessed(head(bench))
        bench.tell(applications=(WEB,))
        await bench.desk.until(lambda: ("web", head(bench)) in bench.desk.deployed())


async def test_news_about_an_application_that_change_nothing_here_cost_nothing(
    bench: Bench,
) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        asked = bench.desk.questions
        for number in range(20):
            bench.tell(applications=(WEB,))
            bench.tell(applications=(application("witness", description=str(number)),))
        await bench.witnessed(bench.push({}))

    assert bench.desk.questions == asked
    assert [name for name, _ in bench.desk.deployed()].count("web") == 1
    assert bench.desk.states == []


async def test_a_hundred_applications_touched_by_one_commit_are_all_deployed(bench: Bench) -> None:
    names = [f"app{number}" for number in range(100)]
    bench.remote.commit({f"apps/{name}/app.pipecd.yaml": application_file(name) for name in names})
    async with bench.running(*(application(name) for name in names)):
        await bench.desk.until(lambda: len(bench.desk.created) == 100)
        commit = bench.remote.commit({f"apps/{name}/x": "1" for name in names})
        await bench.desk.until(lambda: len(bench.desk.created) == 200)

    assert set(bench.desk.deployed()[100:]) == {(name, commit) for name in names}
    assert len(bench.handed) == 200


# Commands


@pytest.mark.parametrize(
    ("strategy", "summary"),
    [
        (common_pb2.AUTO, ""),
        (common_pb2.QUICK_SYNC, "quick sync asked for by alice"),
        (common_pb2.PIPELINE, "pipeline sync asked for by alice"),
    ],
)
async def test_a_command_deploys_the_head_again(bench: Bench, strategy: Any, summary: str) -> None:
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        bench.tell(sync("web", "c1", strategy))
        await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)

    deployment = bench.desk.created[1]
    assert bench.desk.handled_commands == {"c1": deployment.id}
    assert bench.handed[1] == deployment
    assert deployment.trigger.commander == "alice"
    assert deployment.trigger.sync_strategy == strategy
    assert deployment.trigger.strategy_summary == summary
    assert deployment.status_reason == "alice asked for it"
    assert bench.desk.last["web"].deployment_id == deployment.id
    assert not bench.mirror.commands


async def test_a_command_deploys_what_is_in_git_now(bench: Bench) -> None:
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        commit = bench.remote.commit({"README": "not touching"})
        bench.tell(sync("web"))
        await bench.desk.until(lambda: len(bench.desk.created) == 2)

    assert bench.desk.deployed()[1] == ("web", commit)


async def test_a_commit_and_a_command_that_come_together_are_one_deployment(bench: Bench) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        commit = bench.push({"apps/web/x": "1"})
        bench.tell(sync("web"))
        await bench.witnessed(commit)
        await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)
        await bench.witnessed(bench.push({}))

    assert bench.desk.deployed().count(("web", commit)) == 1


async def test_two_commands_for_one_application_are_two_deployments_in_order(bench: Bench) -> None:
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        bench.tell(
            sync("web", "later", commander="bob", created_at=NOW + 1),
            sync("web", "earlier", commander="alice", created_at=NOW),
        )
        await bench.desk.until(lambda: len(bench.desk.handled_commands) == 2)

    assert [each.trigger.commander for each in bench.desk.created[1:]] == ["alice", "bob"]


async def test_a_command_seen_again_after_a_restart_is_the_same_deployment(bench: Bench) -> None:
    """The piped died between creating the deployment and saying so."""
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        bench.tell(sync("web"))
        await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)
    first = bench.desk.handled_commands.pop("c1")
    handed = len(bench.handed)

    async with bench.running(WEB):
        bench.tell(sync("web"))
        await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)

    assert bench.desk.handled_commands == {"c1": first}
    assert len(bench.desk.created) == 2
    assert len(bench.handed) == handed  # the mirror brings it, with the status it has by now


async def test_a_commit_seen_again_after_a_restart_is_the_same_deployment(bench: Bench) -> None:
    bench.desk.loses_reports = True
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
    bench.desk.loses_reports = False

    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        await bench.desk.until(lambda: "web" in bench.desk.last)

    web = [each for each in bench.desk.created if each.application_id == "web"]
    assert len(web) == 1
    assert bench.desk.last["web"].deployment_id == web[0].id


async def test_a_refused_command_is_told_why_and_its_commit_is_not_lost(bench: Bench) -> None:
    """A "no" of one kind says nothing about another kind."""
    disabled = "{onCommand: {disabled: true}}"
    bench.push({"apps/web/app.pipecd.yaml": application_file("web", trigger=disabled)})
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        commit = bench.push({"apps/web/x": "1"})
        bench.tell(sync("web"))
        await bench.desk.until(lambda: "c1" in bench.desk.refusals)
        await bench.witnessed(commit)
        await bench.desk.until(lambda: ("web", commit) in bench.desk.deployed())

    assert bench.desk.refusals == {"c1": "the application does not deploy on command"}
    assert not bench.desk.handled_commands
    assert not bench.mirror.commands


async def test_commands_that_nobody_can_follow_are_refused_with_a_reason(bench: Bench) -> None:
    homeless = application("homeless", repo="other")
    bench.options["unknown_grace"] = 0.0
    async with bench.running(WEB, homeless):
        bench.tell(
            sync("nobody", "unknown"),
            sync("homeless", "homeless"),
            Command(
                id="edit", piped_id="piped", type=Command.UPDATE_APPLICATION_CONFIG, created_at=1
            ),
            Command(
                id="chain", piped_id="piped", type=Command.CHAIN_SYNC_APPLICATION, created_at=1
            ),
        )
        await bench.desk.until(lambda: len(bench.desk.refusals) == 4)

    refusals = bench.desk.refusals
    assert "has no application 'nobody'" in refusals["unknown"]
    assert "there is no repository 'other'" in refusals["homeless"]
    assert "commit the change to git" in refusals["edit"]
    assert "deployment chains" in refusals["chain"]
    assert not bench.mirror.commands


async def test_a_command_waits_a_little_for_an_application_that_is_not_listed_yet(
    bench: Bench,
) -> None:
    async with bench.running(WITNESS):
        await bench.witnessed(head(bench))
        bench.tell(sync("web"))
        bench.tell(applications=(WEB,))
        await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)

    assert not bench.desk.refusals


async def test_other_commands_are_left_to_others(bench: Bench) -> None:
    cancel = Command(id="x", piped_id="piped", type=Command.CANCEL_DEPLOYMENT, created_at=1)
    async with bench.running(WITNESS):
        bench.tell(cancel)
        await bench.witnessed(head(bench))

    assert list(bench.mirror.commands) == ["x"]


# Trouble


async def test_a_broken_file_is_told_once_with_every_fault_and_cleared_when_mended(
    bench: Bench,
) -> None:
    broken = "apiVersion: wrong\nkind: Application\nspec: {name: [], timeout: soon}\n"
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        await bench.witnessed(bench.push({"apps/web/app.pipecd.yaml": broken}))
        await bench.witnessed(bench.push({"README": "1"}))
        (state,) = [state for name, state in bench.desk.states if name == "web"]
        mended = bench.push({"apps/web/app.pipecd.yaml": application_file("web")})
        await bench.witnessed(mended)
        await bench.desk.until(lambda: len(bench.desk.states) == 2)

    assert state.status == INVALID_CONFIG
    assert state.timestamp == NOW
    for part in ("apps/web/app.pipecd.yaml:1:", "apiVersion", "spec.name", "spec.timeout", "soon"):
        assert part in state.reason
    assert bench.desk.states[1][1].status == UNKNOWN
    assert ("web", mended) not in bench.desk.deployed()  # the same as what was deployed


async def test_a_mended_file_of_an_application_that_runs_its_commit_is_synced(
    bench: Bench,
) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
    last = bench.desk.last["web"]
    known = application(
        "web",
        most_recently_triggered_deployment=last,
        most_recently_successful_deployment=last,
        sync_state=ApplicationSyncState(status=INVALID_CONFIG, reason="was broken", timestamp=1),
    )

    async with bench.running(known, WITNESS):
        await bench.desk.until(lambda: bool(bench.desk.states))

    assert [(name, state.status) for name, state in bench.desk.states] == [("web", SYNCED)]


async def test_a_restarted_piped_does_not_tell_the_same_trouble_again(bench: Bench) -> None:
    bench.push({"apps/web/app.pipecd.yaml": "nonsense"})
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        await bench.desk.until(lambda: len(bench.desk.states) == 1)
    known = application("web", sync_state=bench.desk.states[0][1])

    async with bench.running(known, WITNESS):
        await bench.witnessed(bench.push({}))

    assert len(bench.desk.states) == 1


async def test_the_change_that_came_with_a_broken_file_is_deployed_once_it_is_mended(
    bench: Bench,
) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        bench.push({"apps/web/x": "1", "apps/web/app.pipecd.yaml": "nonsense"})
        await bench.witnessed(head(bench))
        mended = bench.push({"apps/web/app.pipecd.yaml": application_file("web")})
        await bench.witnessed(mended)
        await bench.desk.until(lambda: ("web", mended) in bench.desk.deployed())


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("apps/none", "has no folder 'apps/none'"),
        ("apps", "has no application file 'apps/app.pipecd.yaml'"),
        ("../web", "is not inside the repository"),
    ],
)
async def test_a_commit_without_the_application_is_told_and_a_command_for_it_refused(
    bench: Bench, path: str, reason: str
) -> None:
    async with bench.running(application("lost", path)):
        await bench.desk.until(lambda: bool(bench.desk.states))
        bench.tell(sync("lost"))
        await bench.desk.until(lambda: "c1" in bench.desk.refusals)

    ((name, state),) = bench.desk.states
    assert (name, state.status) == ("lost", INVALID_CONFIG)
    assert reason in state.reason
    assert reason in bench.desk.refusals["c1"]
    assert not bench.desk.created


async def test_an_application_of_an_unknown_repository_is_told(bench: Bench) -> None:
    async with bench.running(application("homeless", repo="other"), WITNESS):
        await bench.witnessed(head(bench))
        await bench.desk.until(lambda: bool(bench.desk.states))

    ((name, state),) = bench.desk.states
    assert (name, state.status) == ("homeless", INVALID_CONFIG)
    assert "there is no repository 'other' in the piped config" in state.reason


async def test_a_remote_that_is_gone_is_told_and_its_return_too(bench: Bench) -> None:
    away = bench.remote.path.with_name("away")
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        bench.remote.path.rename(away)
        await bench.desk.until(lambda: len(bench.desk.states) == 2)
        told = list(bench.desk.states)
        away.rename(bench.remote.path)
        await bench.desk.until(lambda: len(bench.desk.states) == 4)
        await bench.witnessed(bench.push({}))

    assert sorted(name for name, _ in told) == ["web", "witness"]
    for _, state in told:
        assert (state.status, state.short_reason) == (UNKNOWN, GIT_AWAY)
        assert f"{bench.remote.remote} is unreachable since" in state.reason
    assert [state.short_reason for _, state in bench.desk.states[2:]] == ["", ""]


async def test_while_the_remote_is_gone_a_command_deploys_what_is_known(bench: Bench) -> None:
    known = head(bench)
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        bench.remote.path.rename(bench.remote.path.with_name("away"))
        bench.tell(sync("web"))
        await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)

    assert bench.desk.created[1].trigger.commit.hash == known
    assert "this is the last commit that was seen" in bench.desk.created[1].status_reason


async def test_a_remote_that_hangs_does_not_hold_up_a_command_for_long(
    bench: Bench, tmp_path: Path
) -> None:
    known = head(bench)
    bench.move_elsewhere(tmp_path)
    bench.options["refresh_limit"] = 0.3
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        (tmp_path / "ssh").write_text("#!/bin/sh\nexec sleep 1000\n")
        bench.tell(sync("web"))
        await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)

    assert bench.desk.created[1].trigger.commit.hash == known
    assert "did not answer in time" in bench.desk.created[1].status_reason


async def test_a_repository_that_never_answered_is_told_and_commands_are_refused(
    bench: Bench,
) -> None:
    bench.remote.path.rename(bench.remote.path.with_name("away"))
    async with bench.running(WEB):
        bench.tell(sync("web"))
        await bench.desk.until(lambda: "c1" in bench.desk.refusals and bool(bench.desk.states))

    assert "is unreachable since" in bench.desk.refusals["c1"]
    assert "is unreachable since" in bench.desk.states[0][1].reason
    assert not bench.desk.created


async def test_an_empty_repository_is_told_and_its_first_commit_deploys(
    bench: Bench, git_remote: Any
) -> None:
    full, bench.remote = bench.remote, git_remote("empty")
    async with bench.running(WEB):
        await bench.desk.until(lambda: bool(bench.desk.states))
        assert "has no branch 'main'" in bench.desk.states[0][1].reason
        bench.remote.git("pull", "--quiet", full.remote, "main")
        await bench.desk.until(lambda: bool(bench.desk.created))


# The control plane


async def test_a_control_plane_that_is_away_gets_the_newest_commit_when_it_is_back(
    bench: Bench,
) -> None:
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        bench.desk.refusing = {"web": UnavailableError("away")}
        bench.remote.commit({"apps/web/x": "1"})
        newest = bench.remote.commit({"apps/web/x": "2"})
        await bench.desk.until(lambda: bench.desk.tries["web"] > 1)
        bench.desk.refusing = {}
        await bench.desk.until(lambda: ("web", newest) in bench.desk.deployed())

    assert bench.handed == bench.desk.created


async def test_a_deployment_that_the_control_plane_refuses_is_tried_once_per_commit(
    bench: Bench,
) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        bench.desk.refusing = {"web": ConfigError("the project is full")}
        await bench.witnessed(bench.push({"apps/web/x": "1"}))
        for number in range(5):
            bench.tell(applications=(application("witness", description=str(number)),))
        await bench.witnessed(bench.push({}))
        assert bench.desk.tries["web"] == 3
        bench.desk.refusing = {}
        later = bench.push({})
        await bench.desk.until(lambda: ("web", later) in bench.desk.deployed())


async def test_a_command_that_the_control_plane_refuses_is_refused_with_its_reason(
    bench: Bench,
) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(head(bench))
        bench.desk.refusing = {"web": ConfigError("the project is full", hint="delete some")}
        bench.tell(sync("web"))
        await bench.desk.until(lambda: "c1" in bench.desk.refusals)

    assert bench.desk.refusals == {"c1": "the project is full (delete some)"}


async def test_a_hint_of_the_control_plane_is_a_look_at_once(bench: Bench, tmp_path: Path) -> None:
    """The repository is elsewhere, and its interval is ten minutes."""
    bench.move_elsewhere(tmp_path)
    async with bench.running(WITNESS):
        await bench.witnessed(head(bench))
        commit = bench.push({})
        bench.mirror.merge(Change(git_hints=(GitHint(repository_id="repo", branch="main"),)))
        await bench.witnessed(commit)


# The record


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
