# SPDX-License-Identifier: Apache-2.0
"""Odd inputs that must load all the same; the data is in `corners.yaml`."""

from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import yaml

from pipecd_model.lint import lint

HEAD = "apiVersion: pipecd.dev/v1beta1\nkind: {kind}\nspec:\n"
CASES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("corners.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["what"]))
def test_it_loads(case: dict[str, Any]) -> None:
    head = HEAD.format(kind=case.get("kind", "Application"))
    text = case.get("text") or head + indent(case["spec"], "  ")

    problems = lint(text, file="app.pipecd.yaml")

    assert problems.faults == ()
    assert problems.config is not None
