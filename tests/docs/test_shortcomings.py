# SPDX-License-Identifier: Apache-2.0
"""The table of what upstream does badly names tests of ours: each of them is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = "## Where upstream falls short\n"


def read_rows() -> list[tuple[str, list[str]]]:
    """Returns the rows: the plugin, and the names of the tests in the last column."""
    _, _, text = (ROOT / "docs" / "testing.md").read_text().partition(SECTION)
    table = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1:]]
    return [(row[0], re.findall(r"`(\w+)`", row[-1])) for row in cells]


def list_tests(plugin: str) -> set[str]:
    """Returns the tests of a plugin."""
    return {
        node.name
        for file in (ROOT / "plugins" / plugin / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize(
    ("plugin", "names"), read_rows(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_shortcoming_of_upstream_is_shown_by_tests_of_that_plugin(
    plugin: str, names: list[str]
) -> None:
    assert names, "a row needs a test"
    assert sorted(set(names) - list_tests(plugin)) == []


def test_every_plugin_of_the_platforms_has_its_rows() -> None:
    plugins = {"terraform", "ecs", "lambda", "cloudrun", "wait", "waitapproval", "analysis"}

    assert {plugin for plugin, _ in read_rows()} == plugins
