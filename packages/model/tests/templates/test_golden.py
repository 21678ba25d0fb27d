# SPDX-License-Identifier: Apache-2.0
"""Every case of the golden files: a template and its data, and what comes of it.

The cases say what Go's text/template with sprig does. A case with `go` says where we differ.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from _pytest.mark import ParameterSet

from pipecd_model.templates import BadTemplateError, render

FILES = sorted((Path(__file__).parent / "golden").glob("*.yaml"))
CASES: list[tuple[str, dict[str, Any]]] = [
    (f"{file.stem}: {case['name']}", case)
    for file in FILES
    for case in yaml.safe_load(file.read_text())
]


def cases_with(key: str) -> list[ParameterSet]:
    """The cases that say what comes of them under a key."""
    return [pytest.param(case, id=name) for name, case in CASES if key in case]


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("case", cases_with("output"))
def test_a_template_gives_its_text(case: dict[str, Any]) -> None:
    assert render(case["template"], case.get("data", {}), name="file") == case["output"]


@pytest.mark.parametrize("case", cases_with("error"))
def test_a_wrong_template_is_explained(case: dict[str, Any]) -> None:
    expected = case["error"]

    with pytest.raises(BadTemplateError) as caught:
        render(case["template"], case.get("data", {}), name="folder/file.yaml")

    (fault,) = caught.value.faults
    assert fault.file == "folder/file.yaml"
    assert fault.line == expected["line"]
    assert fault.column == expected.get("column", fault.column)
    assert expected["message"] in fault.message
    assert fault.hint == expected["hint"]
    assert "s3cret" not in str(caught.value)
