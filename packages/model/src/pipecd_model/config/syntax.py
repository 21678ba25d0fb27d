# SPDX-License-Identifier: Apache-2.0
"""Broken YAML, explained: where it broke, what the line looks like, and how to write it instead."""

from __future__ import annotations

import re
from typing import Any

import yaml

from pipecd_model.config.dialect import YamlProblem

_TEMPLATE = re.compile(r"(?:^|[:\-]\s+)\{\{")
_CLOSED_EARLY = re.compile(r"""(?:^|[:\-]\s+)(["'])(?:(?!\1).)*\1(?=\s*[^\s,\]}:#])""")


def explain(error: yaml.YAMLError, text: str) -> YamlProblem:
    """Say what a parser error means to the person who wrote the text."""
    if isinstance(error, yaml.reader.ReaderError):
        return _bad_character(error, text)
    problem: str = getattr(error, "problem", None) or "not YAML"
    mark: Any = getattr(error, "problem_mark", None)
    opened: Any = getattr(error, "context_mark", None)
    if opened is not None and problem == "found unexpected end of stream":
        # What was never closed has to be mended, not the end of the file.
        return _slip(opened, "a quote is opened here and never closed", "close it")
    if opened is not None and problem.startswith("did not find expected ','"):
        return _slip(opened, "a bracket is opened here and never closed", "close it")
    if mark is None:
        return YamlProblem(line=1, column=1, message=problem)
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    return _slip(mark, *_explain_problem(problem, line, mark.column))


def _slip(mark: Any, message: str, hint: str = "") -> YamlProblem:
    return YamlProblem(line=mark.line + 1, column=mark.column + 1, message=message, hint=hint)


def _explain_problem(problem: str, line: str, column: int) -> tuple[str, str]:
    if _TEMPLATE.search(line):
        return "a value starts with {{", "put quotes around the whole value"
    if early := _CLOSED_EARLY.search(line):
        return "there is text after the closing quote", _suggest_block(line, early)
    if "\t" in line[: column + 1]:
        return "a tab cannot indent", "use spaces"
    if problem == "found character that cannot start any token":
        return f"a value cannot start with {line[column : column + 1]!r}", "put it in quotes"
    if problem == "did not find expected alphabetic or numeric character":
        return "* starts an alias", 'put it in quotes if the text is meant: "*"'
    if problem.startswith("the alias"):
        return problem, "put it in quotes if the text is meant"
    if problem == "mapping values are not allowed in this context":
        hint = (
            'put the value in quotes if it holds ": "; else look at the indentation'
            " and at the line above, which may lack a space after its colon"
        )
        return "a colon stands where no key can be", hint
    if problem in {"did not find expected '-' indicator", "did not find expected key"}:
        what = "items of one list" if line.lstrip().startswith("- ") else "keys of one mapping"
        return "this is not indented like what is above it", f"{what} start in one column"
    return problem, ""


def _suggest_block(line: str, early: re.Match[str]) -> str:
    """Show how to write the value as a block, where every character stands for itself."""
    quote = early.group(1)
    lead = line[: line.index(quote, early.start())].strip()
    return (
        f"a {quote} inside {quote}...{quote} ends the text; write `{lead} |` and put the text"
        " on the next line, indented further, without the outer quotes"
    )


def _bad_character(error: Any, text: str) -> YamlProblem:
    before = text[: error.position] if isinstance(error.position, int) else ""
    code = error.character if isinstance(error.character, int) else ord(error.character)
    return YamlProblem(
        line=before.count("\n") + 1,
        column=len(before) - (before.rfind("\n") + 1) + 1,
        message=f"the character U+{code:04X} is not allowed",
        hint="remove it",
    )
