# SPDX-License-Identifier: Apache-2.0
"""Trouble with files and repositories is told where its reader looks, once."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipecd_piped.trigger.sync_trouble import GIT_AWAY
from pipecd_test_support.git_remote import Remotes
from pipecd_test_support.trigger_bench import (
    NOW,
    WEB,
    WITNESS,
    Bench,
    application,
    application_file,
    sync,
)
from pipecd_wire.model.application_pb2 import (
    INVALID_CONFIG,
    SYNCED,
    UNKNOWN,
    ApplicationSyncState,
)


async def test_a_broken_file_is_told_once_with_every_fault_and_cleared_when_mended(
    bench: Bench,
) -> None:
    broken = "apiVersion: wrong\nkind: Application\nspec: {name: [], timeout: soon}\n"
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
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
        await bench.witnessed(bench.head)
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
        await bench.witnessed(bench.head)
        await bench.desk.until(lambda: len(bench.desk.states) == 1)
    known = application("web", sync_state=bench.desk.states[0][1])

    async with bench.running(known, WITNESS):
        await bench.witnessed(bench.push({}))

    assert len(bench.desk.states) == 1


async def test_the_change_that_came_with_a_broken_file_is_deployed_once_it_is_mended(
    bench: Bench,
) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        bench.push({"apps/web/x": "1", "apps/web/app.pipecd.yaml": "nonsense"})
        await bench.witnessed(bench.head)
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
        await bench.witnessed(bench.head)
        await bench.desk.until(lambda: bool(bench.desk.states))

    ((name, state),) = bench.desk.states
    assert (name, state.status) == ("homeless", INVALID_CONFIG)
    assert "there is no repository 'other' in the piped config" in state.reason


async def test_a_remote_that_is_gone_is_told_and_its_return_too(bench: Bench) -> None:
    away = bench.remote.path.with_name("away")
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
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
    known = bench.head
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
    known = bench.head
    bench.move_elsewhere(tmp_path)
    bench.limits = replace(bench.limits, fetch_seconds=0.3)
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
    bench: Bench, git_remote: Remotes
) -> None:
    full, bench.remote = bench.remote, git_remote("empty")
    async with bench.running(WEB):
        await bench.desk.until(lambda: bool(bench.desk.states))
        assert "has no branch 'main'" in bench.desk.states[0][1].reason
        bench.remote.git("pull", "--quiet", full.remote, "main")
        await bench.desk.until(lambda: bool(bench.desk.created))
