# SPDX-License-Identifier: Apache-2.0
"""Broken YAML, explained: where it broke, what the line looks like, and how to write it instead."""

from __future__ import annotations

import re
from typing import Any

import yaml

from pipecd_model.config.dialect import Slip

_TEMPLATE = re.compile(r"(?:^|[:\-]\s+)\{\{")
_CLOSED_EARLY = re.compile(r"""(?:^|[:\-]\s+)(["'])(?:(?!\1).)*\1(?=\s*[^\s,\]}:#])""")


def explain(error: yaml.YAMLError, text: str) -> Slip:
    """Say what a parser error means to the person who wrote the text."""
    if isinstance(error, yaml.reader.ReaderError):
        return _bad_character(error, text)
    mark: Any = getattr(error, "problem_mark", None)
    problem: str = getattr(error, "problem", None) or "not YAML"
    lines = text.splitlines()
    row, column = (mark.line, mark.column) if mark is not None else (0, 0)
    context_mark: Any = getattr(error, "context_mark", None)
    if problem == "found unexpected end of stream" and context_mark is not None:
        # The quote that was never closed is what has to be mended, not the end of the file.
        row, column = context_mark.line, context_mark.column
        return Slip(
            line=row + 1,
            column=column + 1,
            message="a quote is opened here and never closed",
            hint="close it at the end of the text",
        )
    line = lines[row] if row < len(lines) else ""
    message, hint = _meaning(problem, line, column)
    return Slip(line=row + 1, column=column + 1, message=message, hint=hint)


def _meaning(problem: str, line: str, column: int) -> tuple[str, str]:
    if _TEMPLATE.search(line):
        return "a value starts with {{", "put quotes around the whole value"
    if early := _CLOSED_EARLY.search(line):
        return "there is text after the closing quote", _requoted(line, early)
    if problem == "found character that cannot start any token":
        found = line[column : column + 1]
        if found == "\t":
            return "a tab cannot indent", "use spaces"
        return f"a value cannot start with {found!r}", "put it in quotes"
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
    if problem == "did not find expected '-' indicator":
        return "the list does not go on here", 'items start with "- " in one column'
    if problem == "did not find expected key":
        return "the mapping does not go on here", "keys of one mapping start in one column"
    if problem.startswith("did not find expected ','"):
        return "a bracket is not closed", problem
    return problem, ""


def _requoted(line: str, early: re.Match[str]) -> str:
    """Show how to write the value as a block, where every character stands for itself."""
    quote = early.group(1)
    lead = line[: line.index(quote, early.start())].strip()
    return (
        f"a {quote} inside {quote}...{quote} ends the text; write `{lead} |` and put the text"
        " on the next line, indented further, without the outer quotes"
    )


def _bad_character(error: Any, text: str) -> Slip:
    before = text[: error.position] if isinstance(error.position, int) else ""
    code = error.character if isinstance(error.character, int) else ord(error.character)
    return Slip(
        line=before.count("\n") + 1,
        column=len(before) - (before.rfind("\n") + 1) + 1,
        message=f"the character U+{code:04X} is not allowed",
        hint="remove it",
    )
