# SPDX-License-Identifier: Apache-2.0
"""Reads the blocks of a Terraform file as far as versions need them. Pure.

No evaluation: a value that is not a plain text in quotes is not known.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\r]+)
  | (?P<comment>\#[^\n]*|//[^\n]*)
  | (?P<block>/\*)
  | (?P<newline>\n)
  | (?P<heredoc><<-?[A-Za-z_][\w-]*[ \t\r]*\n)
  | (?P<word>[A-Za-z_][\w-]*)
  | (?P<quote>")
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DEEPEST: Final = 100


class HclError(ValueError):
    """A text that is no HCL."""


@dataclass(slots=True)
class HclBlock:
    """A block at the top of a file."""

    kind: str
    labels: list[str]
    attributes: dict[str, str] = field(default_factory=dict)
    """Those whose value is a plain text."""


def read_blocks(text: str) -> list[HclBlock]:
    """Returns the blocks at the top of a file. Raises HclError.

    Example:
        >>> read_blocks('module "a" {\\n  source = "./b"\\n  version = "1.0"\\n}')[0].attributes
        {'source': './b', 'version': '1.0'}
    """
    blocks: list[HclBlock] = []
    line: list[tuple[str, str]] = []
    depth = 0
    current: HclBlock | None = None
    for kind, value in _tokens(text):
        if kind == "other" and value in "{[(":
            if depth == 0 and value == "{" and line and line[0][0] == "word":
                current = HclBlock(line[0][1], [text for _, text in line[1:]])
                blocks.append(current)
                line = []
            depth += 1
            if depth > _DEEPEST:
                raise HclError("is nested too deeply")
        elif kind == "other" and value in "}])":
            _note(current, line, depth)
            line = []
            depth -= 1
            if depth < 0:
                raise HclError(f"has a {value!r} too many")
            if depth == 0:
                current = None
        elif kind == "newline":
            _note(current, line, depth)
            line = []
        elif depth <= 1:
            line.append((kind, value))
    if depth:
        raise HclError("ends within a block")
    return blocks


def _note(block: HclBlock | None, line: list[tuple[str, str]], depth: int) -> None:
    if block is None or depth != 1 or len(line) != 3:
        return
    (first, name), (_, sign), (third, value) = line
    if first == "word" and sign == "=" and third == "text":
        block.attributes[name] = value


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise HclError(f"cannot be read at character {position}")
        kind = match.lastgroup
        position = match.end()
        if kind == "quote":
            value, position, is_plain = _read_quoted(text, position)
            yield ("text" if is_plain else "template"), value
        elif kind == "block":
            position = text.find("*/", position) + 2
            if position < 2:
                raise HclError("has a comment without an end")
        elif kind == "heredoc":
            position = _skip_heredoc(text, position, match[0].lstrip("<-").strip())
            yield "heredoc", ""
        elif kind not in {"space", "comment"}:
            yield (kind or "other"), match[0]


def _skip_heredoc(text: str, start: int, mark: str) -> int:
    """Returns where the text of a heredoc ends: with a line that is its mark."""
    position = start
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        if text[position:end].strip(" \t\r") == mark:
            return end
        position = end + 1
    raise HclError("has a text without an end")


def _read_quoted(text: str, start: int, nesting: int = 0) -> tuple[str, int, bool]:
    """Returns a quoted text, where it ends, and whether it is plain: without `${…}`."""
    if nesting > _DEEPEST:
        raise HclError("is nested too deeply")
    position, depth, is_plain = start, 0, True
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 2
            continue
        if text[position : position + 2] in {"${", "%{"} and text[position - 1] not in "$%":
            depth, is_plain, position = depth + 1, False, position + 2
            continue
        if depth and char == '"':
            _, position, _ = _read_quoted(text, position + 1, nesting + 1)
            continue
        if depth and char == "}":
            depth -= 1
        elif not depth and char == '"':
            return text[start:position], position + 1, is_plain
        elif char == "\n" and not depth:
            break
        position += 1
    raise HclError("has a text without an end")
