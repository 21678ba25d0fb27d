# SPDX-License-Identifier: Apache-2.0
"""Thousands of templates with what Go's text/template and sprig make of them.

`corpus.json` has data that all templates share and groups of rows: a template, whether keys that
are missing are errors (`strict`, `lenient`, or nothing when it is the same), and the text that
comes of it, or null for an error. Bytes that are no UTF-8 are there as `surrogateescape`. The few
things that we do otherwise on purpose are in the golden files, not here.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.templates import BadTemplateError, RenderLimits, render
from pipecd_model.templates.functions.table import FUNCTIONS

CORPUS: dict[str, Any] = json.loads((Path(__file__).parent / "corpus.json").read_text())
PATIENT = RenderLimits(seconds=30)


def outcome(template: str, *, strict: bool) -> str | None:
    try:
        return render(
            template, CORPUS["data"], name="file", missing_key_error=strict, limits=PATIENT
        )
    except BadTemplateError:
        return None


@pytest.mark.parametrize("group", CORPUS["groups"])
def test_a_template_does_what_it_does_in_go(group: str) -> None:
    differences = []
    for template, mode, expected in CORPUS["groups"][group]:
        for strict in (True, False):
            if mode == ("lenient" if strict else "strict"):
                continue
            come = outcome(template, strict=strict)
            if come != expected:
                differences.append((template, strict, expected, come))

    assert differences == []


def test_every_function_is_in_the_corpus() -> None:
    templates = " ".join(row[0] for rows in CORPUS["groups"].values() for row in rows)

    assert [name for name in FUNCTIONS if name not in templates.split()] == []
