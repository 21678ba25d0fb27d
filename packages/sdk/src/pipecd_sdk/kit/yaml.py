# SPDX-License-Identifier: Apache-2.0
"""YAML as existing files are written: the dialect of Go, several documents, plain values only.

What comes out can be written as JSON; what is written is read as the same values again.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import yaml as _yaml

from pipecd_model.config import dialect
from pipecd_model.config.syntax import explain
from pipecd_model.errors import add_hint

__all__ = ["YamlError", "dump", "dump_all", "load", "load_all"]

# Plain, these would be read as numbers or booleans; the writer knows fewer of them than Go does.
_NO_PLAIN: Final = re.compile(r"[-+.]?[0-9].*|[yYnN]|[-+.]", re.DOTALL)


class YamlError(ValueError):
    """A text that is no YAML; the message has the line, and what is wrong with it.

    Example:
        >>> try:
        ...     load("a: [1")
        ... except YamlError as error:
        ...     print(error)
        line 1: a bracket is opened here and never closed (close it)
    """


def load(text: str | bytes) -> Any:
    """Returns the first document of a text, None when it is empty. Raises YamlError.

    Example:
        >>> load("replicas: 2\\npaused: no\\nstarted: 2024-01-02")
        {'replicas': 2, 'paused': False, 'started': '2024-01-02'}
    """
    return next(_documents(_text(text)), None)


def load_all(text: str | bytes) -> list[Any]:
    """Returns all documents of a text but the empty ones. Raises YamlError.

    Example:
        >>> load_all("a: 1\\n---\\n# nothing here\\n---\\nb: 2\\n")
        [{'a': 1}, {'b': 2}]
    """
    return [each for each in _documents(_text(text)) if each is not None]


def dump(value: Any) -> str:
    """Returns plain values as the text of one document, keys in their order.

    Example:
        >>> print(dump({"on": "yes", "port": "80", "lines": "a\\nb\\n"}), end="")
        'on': 'yes'
        port: '80'
        lines: |
          a
          b
    """
    written: str = _yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True
    )
    return written


def dump_all(values: Iterable[Any]) -> str:
    """Returns the text of several documents.

    Example:
        >>> print(dump_all([{"a": 1}, {"b": 2}]), end="")
        a: 1
        ---
        b: 2
    """
    return "---\n".join(dump(value) for value in values)


def _text(given: str | bytes) -> str:
    if isinstance(given, str):
        return given
    try:
        return given.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlError(f"not UTF-8 at byte {error.start}") from None


def _documents(text: str) -> Iterator[Any]:
    try:
        for start, end in _places(text):
            parsed = dialect.parse(text[start:end])
            if parsed.faults:
                line = text.count("\n", 0, start) + parsed.faults[0].line
                raise YamlError(
                    _format_fault(line, parsed.faults[0].message, parsed.faults[0].hint)
                )
            yield parsed.value
    except _yaml.YAMLError as error:
        slip = explain(error, text)
        raise YamlError(_format_fault(slip.line, slip.message, slip.hint)) from None


def _places(text: str) -> list[tuple[int, int]]:
    """Where each document starts and ends, in characters."""
    starts = [
        event.start_mark.index
        for event in dialect.iter_events(text)
        if isinstance(event, _yaml.DocumentStartEvent) and event.start_mark is not None
    ]
    return list(pairwise([*starts, len(text)]))


def _format_fault(line: int, message: str, hint: str) -> str:
    return add_hint(f"line {line}: {message}", hint)


class _Dumper(_yaml.CSafeDumper):
    """Writes no aliases, and quotes what Go would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    style = None
    if "\n" in text:
        style = "|"
    elif _NO_PLAIN.fullmatch(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
