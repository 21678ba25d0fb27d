# SPDX-License-Identifier: Apache-2.0
"""Everything that people write wrongly: the right line, the right hint, or it loads after all.

The cases are data, in `bad_input/`. Each has the number of the list that they come from; a number
may have several forms, and none may be missing.
"""

import posixpath
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import yaml

from pipecd_model.config import ConfigFaultsError, Fault, load_piped
from pipecd_model.lint import LintContext, Problems, lint

FOLDER = Path(__file__).parent / "bad_input"
ROOT = Path(__file__).parents[4]
NUMBERS = range(1, 116)
FILE = "apps/shop/app.pipecd.yaml"
HEAD = "apiVersion: pipecd.dev/v1beta1\nkind: {kind}\nspec:\n"
IDENTITY = "projectID: p\npipedID: i\napiAddress: localhost:8080\npipedKeyFile: /k\n"
STAGE = "pipeline:\n  stages:\n    - "


class Memory:
    """Files around the one that is checked, two folders below the root of their repository."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def is_inside(self, path: str, /) -> bool:
        return not posixpath.normpath(posixpath.join("apps", path)).startswith("..")

    def exists(self, path: str, /) -> bool:
        return path in self._texts

    def read(self, path: str, /) -> str | None:
        return self._texts.get(path)


def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in sorted(FOLDER.glob("*.yaml")):
        found += yaml.safe_load(file.read_text())
    return found


CASES = cases()
JUDGED = [case for case in CASES if "elsewhere" not in case]


def text_of(case: Mapping[str, Any]) -> str | bytes:
    if "bytes" in case:
        return str(case["bytes"]).encode("latin-1")
    if "text" in case:
        return str(case["text"])
    if "piped" in case:
        return HEAD.format(kind="Piped") + indent(IDENTITY + case["piped"], "  ")
    body = case.get("spec", "")
    if "stage" in case:
        body = STAGE + indent(case["stage"], "      ").lstrip()
    return HEAD.format(kind=case.get("kind", "Application")) + indent(body, "  ")


def judged(case: Mapping[str, Any]) -> Problems:
    if case.get("loader") == "piped":
        with pytest.raises(ConfigFaultsError) as caught:
            load_piped(text_of(case), file=FILE)
        return Problems(faults=caught.value.faults)
    piped = None
    if "by" in case:
        spec = yaml.safe_load(IDENTITY) | case["by"]
        document = {"apiVersion": "pipecd.dev/v1beta1", "kind": "Piped", "spec": spec}
        piped = load_piped(yaml.safe_dump(document), file="piped.yaml").config
    context = LintContext(
        files=Memory(case["files"]) if "files" in case else None,
        piped=piped,
        templates=case.get("templates"),
    )
    return lint(text_of(case), file=FILE, context=context)


def is_told(expected: Mapping[str, Any], told: tuple[Fault, ...]) -> bool:
    return any(
        fault.line == expected["line"]
        and fault.column > 0
        and fault.path == expected.get("path", fault.path)
        and fault.file.endswith(expected.get("file", FILE))
        and expected.get("says", "") in fault.message
        and expected.get("hint", "") in fault.hint
        for fault in told
    )


def name(case: Mapping[str, Any]) -> str:
    return f"{case['id']}: {case['what']}"


@pytest.mark.parametrize("case", JUDGED, ids=name)
def test_what_is_wrong_is_told_with_its_place_and_a_hint(case: dict[str, Any]) -> None:
    problems = judged(case)
    shown = "\n".join(str(each) for each in (*problems.faults, *problems.warnings))

    faults = case.get("faults", [case["fault"]] if "fault" in case else [])
    for expected in faults:
        assert is_told(expected, problems.faults), shown
    if not faults:
        assert not problems.faults, shown
    if "warning" in case:
        assert is_told(case["warning"], problems.warnings), shown
    if case.get("loads"):
        assert problems.config is not None, shown
    assert "never" not in case or case["never"] not in shown


def test_no_case_is_missing() -> None:
    assert {case["id"] for case in CASES} == set(NUMBERS)
    for case in CASES:
        known = {"fault", "faults", "warning", "loads", "elsewhere"}
        assert len(known & case.keys()) == 1, name(case)


def test_cases_that_are_not_about_one_text_are_tested_where_they_belong() -> None:
    for case in CASES:
        if "elsewhere" in case:
            file, _, function = case["elsewhere"].partition("::")
            text = (ROOT / file).read_text()
            assert f"def {function}(" in text, name(case)


@pytest.mark.parametrize("case", JUDGED, ids=name)
def test_one_mistake_is_not_told_twice(case: dict[str, Any]) -> None:
    problems = judged(case)

    assert len(set(problems.faults)) == len(problems.faults)
    assert len(set(problems.warnings)) == len(problems.warnings)
