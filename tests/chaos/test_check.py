# SPDX-License-Identifier: Apache-2.0
"""A made-up violation of each promise is found, and none in what is right."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from chaos import audited
from chaos.applications import ALL_NAMES, APPLICATIONS, Effect
from chaos.check import Ended, log_violation
from chaos.inject import Tally
from chaos.observe import backwards
from chaos.outcome import alive, left_over, triggered
from chaos.processes import marks
from chaos.promises import Violation
from chaos.schedule import Round
from chaos.site import Site
from chaos.summary import Broken, summary, too_few
from pipecd_model.audit import format_head, head_of, seal
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage
from pipecd_wire.pipecd.api.api_pb2 import AuditHead, AuditRecord

DONE, FAILED, STOPPED, FRESH = (
    pb.STAGE_SUCCESS,
    pb.STAGE_FAILURE,
    pb.STAGE_CANCELLED,
    pb.STAGE_NOT_STARTED_YET,
)
INTERRUPTED = "the script was interrupted: it had been started"


def deployment(
    name: str,
    statuses: Sequence[int],
    status: int = pb.DEPLOYMENT_SUCCESS,
    *,
    reason: str = "",
    platform: int | None = None,
) -> Deployment:
    made = Deployment(id="d", application_name=name, status=pb.DeploymentStatus.ValueType(status))
    for index, each in enumerate(statuses):
        stage = PipelineStage(
            id=f"s{index}",
            index=index,
            name=APPLICATIONS[name][index].kind,
            status=pb.StageStatus.ValueType(each),
            status_reason=reason if each == FAILED else "",
        )
        made.stages.append(stage)
    if platform is not None:
        made.stages.append(
            PipelineStage(
                id="r",
                name="DUMMY_ROLLBACK",
                rollback=True,
                status=pb.StageStatus.ValueType(platform),
            )
        )
    return made


def effects(*events: str) -> list[Effect]:
    return [
        Effect(event=event.split()[0], deployment="d", index=int(event.split()[1]), pid=1)
        for event in events
    ]


def ran(*indexes: int) -> list[str]:
    return [f"{event} {index}" for index in indexes for event in ("begin", "end")]


def broken(made: Deployment, events: Sequence[str], lost_shims: int = 0) -> set[str]:
    ended = Ended(deployment=made, effects=effects(*events), lost_shims=lost_shims)
    return {each.promise for each in ended.violations()}


QUICK = range(5)
FAILING = [DONE, DONE, DONE, FAILED, FRESH]
UNDONE = ["undo 0", "undo 2", "undo 3"]


def test_what_is_right_breaks_nothing() -> None:
    assert broken(deployment("quick", [DONE] * 5), ran(*QUICK)) == set()
    failing = deployment("failing", FAILING, pb.DEPLOYMENT_FAILURE, reason="exit code 3")
    assert broken(failing, [*ran(0, 1, 2, 3), *UNDONE]) == set()
    cancelled = deployment("cancelled", [DONE, STOPPED, FRESH], pb.DEPLOYMENT_CANCELLED)
    assert broken(cancelled, [*ran(0), "begin 1", "undo 0", "undo 1"]) == set()
    early = deployment("cancelled", [], pb.DEPLOYMENT_CANCELLED)
    assert broken(early, []) == set()


@pytest.mark.parametrize(
    ("events", "promise"),
    [
        ([*ran(*QUICK), "begin 2"], "once"),
        (ran(0, 1, 2, 3), "once"),
        ([*ran(*QUICK), "undo 1"], "rollback"),
    ],
    ids=["twice", "never", "undone"],
)
def test_a_success_that_did_otherwise_is_found(events: list[str], promise: str) -> None:
    assert broken(deployment("quick", [DONE] * 5), events) == {promise}


def test_a_script_may_run_again_only_for_a_lost_shim_and_where_its_author_allows_it() -> None:
    rerun = deployment("rerun", [DONE, DONE])
    assert broken(rerun, [*ran(0, 1), "begin 0"], lost_shims=1) == set()
    assert broken(rerun, [*ran(0, 1), "begin 0"], lost_shims=0) == {"once"}
    assert broken(deployment("quick", [DONE] * 5), [*ran(*QUICK), "begin 2"], 1) == {"once"}


@pytest.mark.parametrize(
    ("undone", "promise"),
    [
        (["undo 0", "undo 3"], {"rollback"}),
        (["undo 3", "undo 2", "undo 0"], {"rollback"}),
        ([*UNDONE, "undo 3"], {"rollback"}),
        (["undo 0", "undo 1", "undo 2", "undo 3"], {"rollback"}),
        ([*UNDONE, "undo 4"], {"rollback"}),
        ([*UNDONE, "end 1"], {"once", "rollback"}),
    ],
    ids=["missing", "order", "twice", "without one", "not started", "forward after"],
)
def test_a_wrong_rollback_is_found(undone: list[str], promise: set[str]) -> None:
    failing = deployment("failing", FAILING, pb.DEPLOYMENT_FAILURE, reason="exit code 3")
    assert broken(failing, [*ran(0, 1, 2, 3), *undone]) == promise


@pytest.mark.parametrize(
    ("statuses", "status", "platform", "promise"),
    [
        ([DONE, DONE, DONE], pb.DEPLOYMENT_SUCCESS, FRESH, set()),
        ([DONE, DONE, DONE], pb.DEPLOYMENT_SUCCESS, DONE, {"rollback"}),
        ([DONE, FAILED, FRESH], pb.DEPLOYMENT_FAILURE, DONE, set()),
        ([DONE, FAILED, FRESH], pb.DEPLOYMENT_FAILURE, FRESH, {"rollback"}),
    ],
    ids=["success", "needless", "failure", "missing"],
)
def test_a_platform_that_is_not_rolled_back_is_found(
    statuses: list[int], status: int, platform: int, promise: set[str]
) -> None:
    made = deployment("platform", statuses, status, reason=INTERRUPTED, platform=platform)
    undone = ["undo 1"] if status == pb.DEPLOYMENT_FAILURE else []
    assert broken(made, [*ran(1), *undone], lost_shims=1) == promise


@pytest.mark.parametrize(
    ("made", "events", "lost_shims"),
    [
        (deployment("quick", [DONE] * 4), ran(*QUICK), 0),
        (deployment("quick", [DONE] * 5, pb.DEPLOYMENT_RUNNING), ran(*QUICK), 0),
        (deployment("quick", [DONE] * 5, pb.DEPLOYMENT_CANCELLED), ran(*QUICK), 0),
        (deployment("quick", [DONE, FAILED, FRESH, FRESH, FRESH]), ran(0, 1), 0),
        (
            deployment(
                "quick",
                [FAILED, FRESH, FRESH, FRESH, FRESH],
                pb.DEPLOYMENT_FAILURE,
                reason=INTERRUPTED,
            ),
            ["begin 0", "undo 0"],
            0,
        ),
        (deployment("cancelled", [STOPPED, DONE, FRESH], pb.DEPLOYMENT_CANCELLED), ran(0, 1), 0),
    ],
    ids=["stages", "not over", "cancelled", "failed", "interrupted", "after the stop"],
)
def test_statuses_that_do_not_agree_are_found(
    made: Deployment, events: list[str], lost_shims: int
) -> None:
    assert "outcome" in broken(made, events, lost_shims)


def test_a_status_that_goes_backwards_is_found() -> None:
    before = deployment("quick", [DONE] * 5, pb.DEPLOYMENT_RUNNING)
    assert backwards(before, deployment("quick", [DONE] * 5)) == []
    assert backwards(before, deployment("quick", [DONE] * 4 + [FRESH], pb.DEPLOYMENT_RUNNING))
    assert backwards(before, deployment("quick", [DONE] * 4 + [FAILED], pb.DEPLOYMENT_RUNNING))
    assert backwards(before, deployment("quick", [DONE] * 4, pb.DEPLOYMENT_RUNNING))
    assert backwards(before, deployment("quick", [DONE] * 5, pb.DEPLOYMENT_PLANNED))
    ended = deployment("quick", [DONE] * 5)
    assert backwards(ended, deployment("quick", [DONE] * 5, pb.DEPLOYMENT_FAILURE))


def test_a_log_that_is_wrong_is_found() -> None:
    lines = ["Running:", "line 1", "line 2", "line 3"]
    assert log_violation(lines, 3, is_whole=True) == ""
    assert log_violation(lines, 4, is_whole=False) == ""
    assert log_violation(lines, 4, is_whole=True)
    assert log_violation([*lines, "line 3"], 3, is_whole=True)
    assert log_violation(["line 2", "line 1"], 2, is_whole=True)
    assert log_violation(["line 2"], 2, is_whole=False)


def test_a_commit_without_its_deployments_is_found() -> None:
    names = list(ALL_NAMES)
    assert list(triggered(names, ALL_NAMES)) == []
    assert [each.promise for each in triggered(names[1:], ALL_NAMES)] == ["triggered"]
    assert [each.promise for each in triggered([*names, names[0]], ALL_NAMES)] == ["triggered"]


async def test_what_is_left_over_is_found(tmp_path: Path) -> None:
    site = Site(tmp_path, {})
    assert await left_over(site, 0.5) == []
    (site.agents[0].scripts / "d" / "s-0.0").mkdir(parents=True)
    for number in range(100):
        (site.agents[0].trees / "repository" / str(number)).mkdir(parents=True)
    process = await asyncio.create_subprocess_exec(
        "sleep", "60", env={**os.environ, **marks(tmp_path)}
    )
    try:
        found = {each.promise for each in await left_over(site, 0.5)}
    finally:
        process.kill()
        await process.wait()
    assert found == {"records", "folders", "processes"}


async def test_a_program_that_ends_by_itself_is_found(tmp_path: Path) -> None:
    site = Site(tmp_path, {})
    site.piped.arguments = ["pipecd", "no-such-command"]
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(site.piped.keep())
        while not site.piped.deaths:  # noqa: ASYNC110 - another process ends
            await asyncio.sleep(0.01)
        keeping.cancel()
    assert [each.promise for each in alive(site)][:1] == ["alive"]


def test_a_violation_fails_the_run_and_says_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    violation = Violation(promise="once", sentence="ran twice")
    found = [Broken("seed.1", Round(number=7), violation)]
    assert summary(Tally(), found, deaths=0, least=0, title="seed") == 1
    assert 'make chaos SEED=seed.1 ARGS="--only 7"' in capsys.readouterr().out
    assert summary(Tally(), [], deaths=0, least=0, title="seed") == 0
    assert summary(Tally(), [], deaths=1, least=0, title="seed") == 2
    assert summary(Tally(), [], deaths=0, least=1, title="seed") == 2


def test_deaths_are_counted_by_place() -> None:
    tally = Tally()
    tally.deaths["at shim.running"] += 2
    tally.deaths["at shim.running (power)"] += 1
    assert "shim.running" not in too_few(tally.deaths, 3)
    assert too_few(tally.deaths, 4)["shim.running"] == 3


def make_chain(count: int) -> list[AuditRecord]:
    chain: list[AuditRecord] = []
    end = AuditHead()
    for number in range(count):
        record = AuditRecord(project_id="p", action="Approve", subject=f"d{number}")
        chain.append(seal(record, end))
        end = head_of(chain[-1])
    return chain


def test_a_broken_audit_and_a_change_without_a_record_are_found(tmp_path: Path) -> None:
    chain = make_chain(3)
    heads = [head_of(each) for each in chain]
    log = tmp_path / "log"
    lines = [json.dumps({"event": "audit.head", "head": format_head(each)}) for each in heads]
    log.write_text("\n".join([*lines, lines[0][:60]]))  # the last one is cut off
    logged = list(audited.read_heads(log))
    assert logged == heads
    done = [("Approve", "d0"), ("Approve", "d2")]

    assert list(audited.find_violations(chain, heads[-1], logged, done)) == []
    for wrong in (chain[:-1], chain[1:], [chain[0], chain[2]]):
        [found] = audited.find_violations(wrong, head_of(wrong[-1]), logged, ())
        assert found.promise == "audit"
    [found] = audited.find_violations(chain, heads[-1], logged, [*done, ("Cancel", "d1")])
    assert "Cancel of d1 has no record" in found.sentence
