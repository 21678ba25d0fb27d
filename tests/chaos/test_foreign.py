# SPDX-License-Identifier: Apache-2.0
"""A made-up violation by a plugin of another maker is found, and none in what is right."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from chaos.applications import document
from chaos.foreign import CANCELLED, KIND, ForeignEnded, log_violation
from pipecd_wire.model import deployment_pb2 as pb

DONE, FAILED, STOPPED, FRESH = (
    pb.STAGE_SUCCESS,
    pb.STAGE_FAILURE,
    pb.STAGE_CANCELLED,
    pb.STAGE_NOT_STARTED_YET,
)


def broken(name: str, statuses: Sequence[int], status: int, *events: str) -> set[str]:
    deployment = pb.Deployment(
        id="d", application_name=name, status=pb.DeploymentStatus.ValueType(status)
    )
    for index, each in enumerate(statuses):
        deployment.stages.add(
            id=f"s{index}", index=index, name=KIND, status=pb.StageStatus.ValueType(each)
        )
    parsed = [(event.split()[0], int(event.split()[1])) for event in events]
    ended = ForeignEnded(deployment=deployment, events=parsed)
    return {each.promise for each in ended.violations()}


FAILING = ["begin 0", "end 0", "begin 1", "end 1", "undo 0", "undone 0", "undo 1", "undone 1"]


def failing(*events: str) -> set[str]:
    return broken("foreign", [DONE, FAILED], pb.DEPLOYMENT_FAILURE, *events)


def test_what_is_right_breaks_nothing() -> None:
    assert failing(*FAILING) == set()
    assert failing("begin 0", *FAILING) == set(), "again after a death"
    assert failing(*FAILING[:5], *FAILING[4:]) == set(), "its rollback again after a death"
    cancelled = ["begin 0", "end 0", "begin 1", *FAILING[4:]]
    assert broken(CANCELLED, [DONE, STOPPED], pb.DEPLOYMENT_CANCELLED, *cancelled) == set()
    assert broken(CANCELLED, [DONE, DONE], pb.DEPLOYMENT_SUCCESS, *FAILING[:4]) == set()
    assert broken(CANCELLED, [], pb.DEPLOYMENT_CANCELLED) == set()


@pytest.mark.parametrize(
    ("events", "promise"),
    [
        ([*FAILING[:3], "beside 1", *FAILING[3:]], "beside"),
        ([*FAILING, "end 1"], "rollback"),
        (FAILING[:6], "rollback"),
        ([*FAILING[:4], "undo 1", "undone 1", "undo 0", "undone 0"], "rollback"),
        (FAILING[:3] + FAILING[4:], "outcome"),
    ],
    ids=["overlap", "forward after", "not undone", "order", "without its end"],
)
def test_what_is_wrong_is_found(events: list[str], promise: str) -> None:
    assert failing(*events) == {promise}


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([DONE, DONE], pb.DEPLOYMENT_FAILURE),
        ([DONE, FAILED], pb.DEPLOYMENT_SUCCESS),
        ([DONE, STOPPED], pb.DEPLOYMENT_FAILURE),
        ([DONE, FRESH], pb.DEPLOYMENT_FAILURE),
        ([DONE], pb.DEPLOYMENT_FAILURE),
        ([DONE, FAILED], pb.DEPLOYMENT_RUNNING),
    ],
)
def test_statuses_that_do_not_agree_are_found(statuses: list[int], status: int) -> None:
    assert "outcome" in broken("foreign", statuses, status, *FAILING)


def test_a_log_that_is_wrong_is_found() -> None:
    lines = ["Running commands...", "line 1", "line 2", "line 3"]
    assert log_violation(lines, 3, is_whole=True) == ""
    assert log_violation([*lines[:3], *lines], 3, is_whole=True) == "", "a run that was lost"
    assert log_violation([*lines, *lines[:3]], 3, is_whole=False) == ""
    assert log_violation([*lines, *lines[:3]], 3, is_whole=True)
    assert log_violation([*lines, "line 2", "line 3"], 3, is_whole=True)
    assert log_violation(["line 1", "line 3"], 3, is_whole=False)
    assert log_violation(["line 1", "line 1", "line 2", "line 2"], 2, is_whole=False)
    assert log_violation([], 3, is_whole=True)


def test_a_script_that_meets_another_leaves_a_trace(tmp_path: Path) -> None:
    """Also when only a silent child of the other is left."""
    text = document("foreign", tmp_path, "round 1")
    run = text.partition("run: |\n")[2].partition("          onRollback")[0]
    whole = "\n".join(line.strip() for line in run.splitlines())
    alone = subprocess.run(["/bin/sh", "-c", whole], check=False, timeout=60)
    assert alone.returncode == 0
    lock = tmp_path / "foreign.round-1.lock"
    with subprocess.Popen(["flock", "--no-fork", lock, "sleep", "600"]) as other:
        while subprocess.run(["flock", "--nonblock", lock, "true"], check=False).returncode == 0:
            pass
        subprocess.run(["/bin/sh", "-c", whole], check=False, timeout=60)
        other.kill()
    events = [line.split()[0] for line in (tmp_path / "foreign").read_text().splitlines()]
    assert events == ["begin", "end", "beside", "begin", "end"]
