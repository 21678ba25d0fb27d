# SPDX-License-Identifier: Apache-2.0
"""The numbers of an analysis on a terminal, whatever a plugin has written."""

import json
from typing import Any

import pytest

from pipecd_pipectl.analysisview import print_analyses, read_analyses
from pipecd_wire.model import deployment_pb2 as pb

RECORD: dict[str, Any] = {
    "id": "metrics-0",
    "name": "errors",
    "failureLimit": 1,
    "looks": 3,
    "evaluated": 2,
    "allFailures": 1,
    "evaluations": [
        {"at": 1704196860, "verdict": "EXPECTED", "text": "canary 3 values", "pValue": 0.4},
        {
            "at": 1704196920.25,
            "verdict": "UNEXPECTED",
            "text": "canary is higher",
            "pValue": 0.0142857,
            "warning": "only 3 values on one side",
        },
    ],
}


def make_stage(**metadata: str) -> pb.PipelineStage:
    named = {f"analysis/{key.replace('_', '-')}": value for key, value in metadata.items()}
    return pb.PipelineStage(name="ANALYSIS", index=1, metadata=named)


def show(stage: pb.PipelineStage, capsys: pytest.CaptureFixture[str], *, wide: bool = False) -> str:
    print_analyses([stage], wide=wide)
    return capsys.readouterr().out


def test_each_analysis_has_a_line_with_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    shown = show(make_stage(metrics_0=json.dumps(RECORD)), capsys)

    assert "metrics-0 errors" in shown
    assert "2 of 3" in shown
    assert "1 (1 allowed)" in shown
    assert "0.01429" in shown
    assert "canary is higher" in shown
    assert "warning: metrics-0 errors: only 3 values on one side (1 of 2)" in shown
    assert "canary 3 values" not in shown


def test_wide_shows_every_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    shown = show(make_stage(metrics_0=json.dumps(RECORD)), capsys, wide=True)

    assert [line.split()[1] for line in shown.splitlines() if "EXPECTED" in line] == [
        "EXPECTED",
        "UNEXPECTED",
    ]


def test_failures_that_are_forgotten_do_not_count() -> None:
    record = {**RECORD, "failureWindowSeconds": 60.0, "failures": []}

    [found] = read_analyses({"analysis/metrics-0": json.dumps(record)})

    assert found.failures == 0


def test_a_stage_without_numbers_shows_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(pb.PipelineStage(name="WAIT", metadata={"startTime": "1"}), capsys) == ""


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", "[" * 50_000, '"' + "x" * 70_000 + '"'],
    ids=["empty", "cut", "a list", "nothing", "a number", "deep", "large"],
)
def test_what_cannot_be_read_is_left_out(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(make_stage(metrics_0=text), capsys) == ""


def test_values_of_the_wrong_kind_and_control_characters_do_no_harm(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = {
        "name": "\x1b[2J\nname",
        "looks": "many",
        "evaluated": -3,
        "allFailures": float("inf"),
        "evaluations": [7, None, {"at": 1e300, "text": ["x"], "pValue": float("nan")}],
    }
    shown = show(make_stage(metrics_0=json.dumps(record)), capsys, wide=True)

    assert "\x1b" not in shown
    assert "0 of 0" in shown
