# SPDX-License-Identifier: Apache-2.0
"""docs/sdk.md: every public name has an example there, and all of them run."""

import ast
import re
import types
from importlib import import_module
from inspect import CO_COROUTINE
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "sdk.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PUBLIC = ["pipecd_sdk", "pipecd_sdk.constraints", "pipecd_sdk.testing"] + [
    f"pipecd_sdk.kit.{name}"
    for name in (
        "diff",
        "gojson",
        "images",
        "manifests",
        "opened_files",
        "patterns",
        "platforms",
        "process",
        "regex",
        "script_records",
        "shell",
        "tools",
        "yaml",
    )
]


def blocks() -> list[tuple[int, str]]:
    """Every example with the line that it starts in."""
    text = PAGE.read_text()
    return [(text.count("\n", 0, each.start(1)) + 1, each[1]) for each in BLOCK.finditer(text)]


async def test_the_examples_of_the_reference_run_from_top_to_bottom(tmp_path: Path) -> None:
    module = types.ModuleType("sdk_page")
    names: dict[str, Any] = vars(module)
    names["folder"] = tmp_path
    for line, text in blocks():
        tree = ast.increment_lineno(ast.parse(text), line - 1)
        code = compile(tree, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        made = eval(code, names)  # noqa: S307 - our own page
        if code.co_flags & CO_COROUTINE:
            await made


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_an_example(module: str) -> None:
    imported = {
        (node.module, alias.name)
        for _, text in blocks()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    missing = {name for name in import_module(module).__all__ if (module, name) not in imported}
    assert missing == set()


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_explained_in_words(module: str) -> None:
    words = BLOCK.sub("", PAGE.read_text())

    missing = {name for name in import_module(module).__all__ if f"`{name}`" not in words}
    assert missing == set()
