# SPDX-License-Identifier: Apache-2.0
"""What the control plane makes of wanted deployments."""

from pathlib import Path

from pipecd_model.errors import ConfigError, UnavailableError
from pipecd_piped.controlplane.state import GitHint, StateChange
from pipecd_test_support.trigger_bench import WEB, WITNESS, Bench, application, sync


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


async def test_a_deployment_without_an_answer_is_not_made_again_for_the_next_commit(
    bench: Bench,
) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        bench.desk.loses_answers = {"web"}
        first = bench.push({"apps/web/x": "1"})
        await bench.desk.until(lambda: ("web", first) in bench.desk.deployed())
        await bench.witnessed(bench.push({}))
        bench.desk.loses_answers = set()
        last = bench.push({"apps/web/x": "2"})
        await bench.desk.until(lambda: ("web", last) in bench.desk.deployed())

    commits = [commit for name, commit in bench.desk.deployed() if name == "web"]
    assert commits[1:] == [first, last]


async def test_a_deployment_that_the_control_plane_refuses_is_tried_once_per_commit(
    bench: Bench,
) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        bench.desk.refusing = {"web": ConfigError("the project is full")}
        await bench.witnessed(bench.push({"apps/web/x": "1"}))
        for number in range(5):
            bench.tell(applications=(application("witness", description=str(number)),))
        await bench.witnessed(bench.push({}))
        assert bench.desk.tries["web"] == 3
        name, state = bench.desk.states[0]
        bench.desk.refusing = {}
        later = bench.push({})
        await bench.desk.until(lambda: ("web", later) in bench.desk.deployed())

    assert (name, state.short_reason) == ("web", "the control plane refuses its deployment")
    assert state.reason == "the project is full"
    assert bench.desk.states[-1][1].short_reason == ""


async def test_a_command_that_the_control_plane_refuses_is_refused_with_its_reason(
    bench: Bench,
) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        bench.desk.refusing = {"web": ConfigError("the project is full", hint="delete some")}
        bench.tell(sync("web"))
        await bench.desk.until(lambda: "c1" in bench.desk.refusals)

    assert bench.desk.refusals == {"c1": "the project is full (delete some)"}


async def test_a_hint_of_the_control_plane_is_a_look_at_once(bench: Bench, tmp_path: Path) -> None:
    """The repository is elsewhere, and its interval is ten minutes."""
    bench.move_elsewhere(tmp_path)
    async with bench.running(WITNESS):
        await bench.witnessed(bench.head)
        commit = bench.push({})
        bench.state.merge(StateChange(git_hints=(GitHint(repository_id="repo", branch="main"),)))
        await bench.witnessed(commit)
