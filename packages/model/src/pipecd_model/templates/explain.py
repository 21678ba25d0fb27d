# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a template, told to its author: the place, the reason, what to write instead.

The data may hold secrets. So of what the engine says while it renders, only what comes from the
template itself is repeated; what a function says about its values is not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

from pipecd_model.config.fault import ConfigFaultsError, Fault
from pipecd_model.templates.limits import NoSuchKeyError, TooMuchError
from pipecd_model.templates.names import ALLOWED, GO, REFUSED


class BadTemplateError(ConfigFaultsError):
    """A template cannot be rendered; says where and why."""

    def __init__(
        self, name: str, message: str, *, hint: str = "", line: int = 0, column: int = 0
    ) -> None:
        fault = Fault(file=name, line=line, column=column, message=message, hint=hint)
        super().__init__([fault])


_SHOWN: Final = 200
"""Characters of a name that are repeated."""

Told = tuple[str, str]
"""A message and a hint."""


def place(text: str, index: int) -> tuple[int, int]:
    """Line and column, from 1, of a character."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def fault_of(
    failure: BaseException, text: str, name: str, data: Mapping[str, object]
) -> BadTemplateError:
    """Turn a failure of the engine into a fault of the file."""
    position: int | None = getattr(failure, "position", None)
    if position is None:
        message, hint = _without_place(failure)
        return BadTemplateError(name, message, hint=hint)
    # The engine counts bytes.
    index = len(text.encode()[:position].decode(errors="ignore"))
    said = str(getattr(failure, "message", "")) or str(failure).split(": ", 1)[-1]
    action = _action_at(text, index)
    if getattr(failure, "template_name", None) is None:
        message, hint = _of_syntax(said, action)
    else:
        message, hint = _of_rendering(failure, said, action, data)
    line, column = place(text, index)
    return BadTemplateError(name, message, hint=hint, line=line, column=column)


def _without_place(failure: BaseException) -> Told:
    if isinstance(failure, RecursionError):
        return "the template is nested too deeply", ""
    return "the template cannot be rendered", ""


def _action_at(text: str, index: int) -> str:
    start = max(text.rfind("{{", 0, index + 2), 0)
    end = text.find("}}", index)
    return text[start : end if end >= 0 else None]


_UNKNOWN_FUNCTION: Final = re.compile(r"function '(\w+)' (?:is )?not defined")
_DASHED: Final = re.compile(r"((?:\.\w+)*)\.(\w+(?:-\w+)+)")
_SYNTAX: Final[Mapping[str, Told]] = {
    "unclosed action": ("the action is opened here and never closed", "write }} at its end"),
    "unclosed comment": ("the comment is opened here and never closed", "write */}} at its end"),
    "unclosed left paren": ("a parenthesis is not closed", "write ) before }}"),
    "unexpected EOF": ("a block is not ended", "if, range, with, define, block need {{ end }}"),
    "unexpected end": ("there is no block to end here", "remove the {{ end }}"),
    "template nesting limit exceeded": ("the template is nested too deeply", ""),
    "missing value for command": ("the action is empty", 'write {{ "{{" }} for two braces'),
}


def _of_syntax(said: str, action: str) -> Told:
    if unknown := _UNKNOWN_FUNCTION.search(said):
        return _unknown_function(unknown[1])
    if dashed := _DASHED.search(action):
        prefix, key = dashed.groups()
        return (
            f'"-" is not allowed in a dotted name: {dashed[0]}',
            f'write index {prefix or "."} "{key}"',
        )
    return _SYNTAX.get(said, (said, ""))


def _unknown_function(name: str) -> Told:
    if name in REFUSED:
        return f"the function {name!r} is not available", REFUSED[name]
    return f"there is no function {name!r}", _nearest(name, ALLOWED | GO)


_MISSING: Final = re.compile(r"missing key or attribute '(.*)'")
_ATTRIBUTE: Final = re.compile(r"(?:attribute|property|method) '(.*)' is not allowed")
_FAILED: Final = re.compile(r"function '(\w+)' failed: (.*)", re.DOTALL)
_ARITY: Final = re.compile(r"wrong number of args for (\w+): want (.*) got (\d+)")
_KIND: Final = re.compile(r"argument (\d+) to \w+: expected (.*), got (\w+)")
_BUDGET: Final = re.compile(r"(\S+)(?: character)? budget exceeded: limit (\d+)")
_RANGE: Final = re.compile(r"range cannot iterate over (\w+)")
_NO_TEMPLATE: Final = re.compile(r"template '(.*)' is not defined")

_BUDGETS: Final[Mapping[str, str]] = {
    "output": "the template writes more than {} characters",
    "iteration": "the template loops more than {} times",
    "function-call": "the template calls more than {} functions",
    "template-depth": "templates call each other more than {} deep",
}
_CAUSES: Final[Mapping[type[BaseException], str]] = {
    ZeroDivisionError: "it divides by zero",
    IndexError: "the index is out of range",
    TypeError: "a value is of the wrong kind",
    ValueError: "a value is of the wrong form",
}
_KINDS: Final[Mapping[str, str]] = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "dict": "a map",
    "list": "a list",
    "NoneType": "nothing",
}


def _of_rendering(
    failure: BaseException, said: str, action: str, data: Mapping[str, object]
) -> Told:
    if found := _UNKNOWN_FUNCTION.search(said):
        return _unknown_function(found[1])
    if found := _MISSING.search(said):
        return _missing_key(found[1], action, data)
    if found := _ATTRIBUTE.search(said):
        return f"only a map has {found[1]!r}, and this is none", ""
    if found := _ARITY.search(said):
        return f"{found[1]} takes {found[2]} arguments, not {found[3]}", ""
    if found := _BUDGET.search(said):
        return _BUDGETS[found[1]].format(f"{int(found[2]):,}"), ""
    if found := _RANGE.search(said):
        return f"range needs a list, a map or a number, not {_kind(found[1])}", ""
    if found := _NO_TEMPLATE.search(said):
        return f"there is no template {found[1]!r}", "define it in the same file"
    if found := _FAILED.search(said):
        return _failed(found[1], found[2], failure.__cause__, action, data)
    if said == "nil is not a command":
        return "nil is not a value", ""
    if said == "non-callable command has arguments":
        return "this is not a function, but it is given arguments", ""
    return "the action cannot be carried out", ""


def _failed(
    function: str,
    reason: str,
    cause: BaseException | None,
    action: str,
    data: Mapping[str, object],
) -> Told:
    if isinstance(cause, TooMuchError):
        return f"{function}: {cause}", ""
    if isinstance(cause, NoSuchKeyError):
        return _missing_key(str(cause.key), action, data)
    if function == "fail":
        return reason, "the template itself says so"
    if kind := _KIND.fullmatch(reason):
        number, wanted, given = kind.groups()
        return f"{function}: argument {number} must be {_kind(wanted)}, not {_kind(given)}", ""
    for known, meaning in _CAUSES.items():
        if isinstance(cause, known):
            return f"{function}: {meaning}", ""
    return f"{function} failed", ""


def _kind(name: str) -> str:
    return _KINDS.get(name.partition("[")[0], name)


def _missing_key(key: str, action: str, data: Mapping[str, object]) -> Told:
    """Say where a name was looked for, and which one there was probably meant."""
    chain = re.search(rf"((?:\.\w+)*)\.{re.escape(key)}\b", action)
    prefix = chain[1] if chain else ""
    if not chain and (indexed := re.search(r"\bindex\s+((?:\.\w+)+)", action)):
        prefix = indexed[1]
    inside: object = data
    for name in prefix.split(".")[1:]:
        inside = inside.get(name) if isinstance(inside, Mapping) else None
    known = [str(name) for name in inside] if isinstance(inside, Mapping) else []
    where = f" in {prefix}" if 0 < len(prefix) < _SHOWN else ""
    return f"there is no {key[:_SHOWN]!r}{where}", _nearest(key, known)


def _nearest(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else ""
