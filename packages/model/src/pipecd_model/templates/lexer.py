# SPDX-License-Identifier: Apache-2.0
"""Cutting a template into texts and the words of its actions.

Reading takes time in proportion to the text, and stops at the first thing that is wrong or too
much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from pipecd_model.templates.faults import TemplateFaultError
from pipecd_model.templates.limits import RenderLimits

OPEN: Final = "{{"

_SPACE: Final = " \t\r\n"
_COMMENT: Final = re.compile(r"\{\{(?:-[ \t\r\n])?/\*")
_COMMENT_END: Final = re.compile(r"([ \t\r\n]-)?\}\}")
_OPENED: Final = re.compile(r"\{\{(?:-(?=[ \t\r\n]))?")
_WORD: Final = re.compile(
    r"""
      (?P<close>(?:[ \t\r\n]++-)?\}\})
    | (?P<space>[ \t\r\n]+)
    | (?P<field>\.(?=[^\W\d])\w+)
    | (?P<number>[+-]?(?:0[xX][0-9a-fA-F_]*\.?[0-9a-fA-F_]*(?:[pP][+-]?\w*)?
        |(?:[0-9]|\.[0-9])[0-9_]*\.?[0-9_]*(?:[eE][+-]?[0-9_]*)?)\w*)
    | (?P<variable>\$\w*)
    | (?P<name>[^\W\d]\w*)
    | (?P<text>"(?>[^"\\\n]|\\[^\n])*"|`[^`]*`)
    | (?P<character>'(?>[^'\\\n]|\\[^\n])*')
    | (?P<declare>:=)
    | (?P<assign>=)
    | (?P<pipe>\|)
    | (?P<comma>,)
    | (?P<open>\()
    | (?P<shut>\))
    | (?P<dot>\.)
    """,
    re.VERBOSE,
)
_DASHED: Final = re.compile(r"((?:\.\w+)*)\.(\w+(?:-\w+)+)")
_AFTER_NAME: Final = frozenset(_SPACE + ".,|:()")
_NAMES: Final = frozenset({"field", "variable", "name"})


class Word(NamedTuple):
    """A part of an action, or a whole text between two of them."""

    kind: str
    text: str
    position: int


def read_words(text: str, limits: RenderLimits) -> Iterator[Word]:
    """Cut a template into words, `plain` ones for the texts; raises TemplateFaultError."""
    if len(text) > limits.text:
        raise TemplateFaultError(
            f"the template is too large: {len(text):,} characters, at most {limits.text:,}",
            hint="put what needs no template into another file",
            position=0,
        )
    position = actions = characters = 0
    trim = False
    while (start := text.find(OPEN, position)) >= 0:
        actions += 1
        if actions > limits.actions:
            raise TemplateFaultError("the template has too many actions", position=start)
        trims_before = text[start + 2 : start + 3] == "-" and text[start + 3 : start + 4] in _BLANK
        yield _plain(text, position, start, after=trim, before=trims_before)
        if comment := _COMMENT.match(text, start):
            position, trim = _comment_end(text, start, comment.end())
            continue
        opened = _OPENED.match(text, start)
        yield Word("start", OPEN, start)
        position = opened.end() if opened else start + 2
        trim = False
        # All of it, before the first word is looked at: that it has an end matters most.
        words = _words(text, start, position, start + limits.action_text - characters)
        yield from words
        position = words[-1].position + len(words[-1].text)
        trim = len(words[-1].text) > 2
        characters += position - start
    yield _plain(text, position, len(text), after=trim, before=False)
    yield Word("end", "", len(text))


_BLANK: Final = frozenset(_SPACE)


def _plain(text: str, start: int, end: int, *, after: bool, before: bool) -> Word:
    part = text[start:end]
    if after:
        part = part.lstrip(_SPACE)
    return Word("plain", part.rstrip(_SPACE) if before else part, start)


def _comment_end(text: str, start: int, inside: int) -> tuple[int, bool]:
    """Return the place after a comment, and whether the space after it is taken away."""
    closed = text.find("*/", inside)
    if closed < 0:
        raise TemplateFaultError(
            "the comment is opened here and never closed",
            hint="write */}} at its end",
            position=start,
        )
    end = _COMMENT_END.match(text, closed + 2)
    if end is None:
        raise TemplateFaultError(
            "a comment has an action for itself", hint="write */}} at its end", position=start
        )
    return end.end(), end[1] is not None


def _words(text: str, start: int, position: int, furthest: int) -> list[Word]:
    """Cut one action into words, the closing braces included."""
    match = _WORD.match
    words: list[Word] = []
    depth = 0
    while True:
        found = match(text, position)
        if found is None:
            raise _strange(text, start, position)
        if found.end() > furthest:
            raise TemplateFaultError("the template has too many actions", position=start)
        kind = found.lastgroup or ""
        position = found.end()
        if kind in _NAMES and position < len(text) and text[position] not in _AFTER_NAME:
            if not text.startswith("}}", position):
                raise _strange(text, start, position)
        elif kind == "open":
            depth += 1
        elif kind == "shut":
            depth -= 1
            if depth < 0:
                raise TemplateFaultError(
                    "there is no parenthesis to close here", position=found.start()
                )
        elif kind == "close" and depth:
            raise TemplateFaultError(
                "a parenthesis is not closed", hint="write ) before }}", position=found.start()
            )
        words.append(Word(kind, found[0], found.start()))
        if kind == "close":
            return words


def _strange(text: str, start: int, position: int) -> TemplateFaultError:
    """Say what is wrong with a character that starts no word."""
    if position >= len(text):
        return TemplateFaultError(
            "the action is opened here and never closed",
            hint="write }} at its end",
            position=start,
        )
    character = text[position]
    if character in {'"', "'", "`"}:
        quoted = {'"': "quoted string", "'": "character constant", "`": "raw quoted string"}
        return TemplateFaultError(f"unterminated {quoted[character]}", position=position)
    end = text.find("}}", position)
    action = text[start : end if end >= 0 else None][:_SEARCHED]
    if character == "-" and (dashed := _DASHED.search(action)):
        prefix, key = dashed.groups()
        return TemplateFaultError(
            f'"-" is not allowed in a dotted name: {dashed[0][:_SHOWN]}',
            hint=f'write index {prefix or "."} "{key}"'[:_SHOWN],
            position=position,
        )
    if character == "{" or end < 0:
        return TemplateFaultError(
            "the action is opened here and never closed",
            hint="write }} at its end",
            position=start,
        )
    return TemplateFaultError(f"{character!r} cannot stand here", position=position)


_SEARCHED: Final = 500
_SHOWN: Final = 200
