# SPDX-License-Identifier: Apache-2.0
"""Masks known secret values in what is shown: a net, beside the program's own masks. Pure."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pipecd_sdk.kit import gojson

MASK: Final = "(secret)"
SHORTEST: Final = 6
"""Characters of a value that is masked: shorter ones stand everywhere."""
_SECRET_NAME: Final = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|KEY|PRIVATE|AUTH", re.IGNORECASE)


class Mask:
    """Replaces secret values."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.values = frozenset(values)
        found: set[str] = set()
        for value in self.values:
            for line in (value, *value.splitlines()):
                if len(line.strip()) >= SHORTEST:
                    found |= {line, *_quote(line)}
        self._by_head: dict[str, list[str]] = defaultdict(list)
        """The texts by how they begin, the longest first: a plan may hold thousands of them, and
        an expression of all would try each at every place of a text."""
        for each in sorted(found, key=len, reverse=True):
            self._by_head[each[:SHORTEST]].append(each)

    def apply(self, text: str) -> str:
        """Returns the text without the values.

        Example:
            >>> Mask(["hush-hush"]).apply("token hush-hush")
            'token (secret)'
        """
        if not self._by_head:
            return text
        shown: list[str] = []
        place = begin = 0
        while place <= len(text) - SHORTEST:
            known = self._by_head.get(text[place : place + SHORTEST], ())
            found = next((each for each in known if text.startswith(each, place)), "")
            if found:
                shown += (text[begin:place], MASK)
                begin = place + len(found)
            place += len(found) or 1
        return "".join([*shown, text[begin:]]) if shown else text


def _quote(text: str) -> list[str]:
    """Returns a text as it may stand within quotes: JSON of this program, of Terraform, of Go."""
    written = (json.dumps(text), json.dumps(text, ensure_ascii=False), gojson.dumps(text))
    return [each[1:-1] for each in written]


def collect_sensitive(value: Any, marks: Any) -> Iterator[str]:
    """Yields the texts in a value that Terraform marks as sensitive.

    The marks do not follow a value into what a provider computes of it: so the same text is masked
    wherever it stands.

    Example:
        >>> list(collect_sensitive({"a": ["x", "y"], "b": "z"}, {"a": [True]}))
        ['x']
    """
    if marks is True:
        yield from _iter_texts(value)
    elif isinstance(marks, dict) and isinstance(value, dict):
        for key, each in marks.items():
            yield from collect_sensitive(value.get(key), each)
    elif isinstance(marks, list) and isinstance(value, list):
        for item, each in zip(value, marks, strict=False):
            yield from collect_sensitive(item, each)


def _iter_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _iter_texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _iter_texts(each)


def find_secret_values(variables: Mapping[str, str]) -> list[str]:
    """Returns the values of variables whose names say that they are secret.

    Example:
        >>> find_secret_values({"AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "eu-west-1"})
        ['x']
    """
    return [value for name, value in variables.items() if _SECRET_NAME.search(name)]
