# SPDX-License-Identifier: Apache-2.0
"""Secrets that a stage names in its commands and variables: `{{ .encryptedSecrets.name }}`.

Only this is replaced, exactly; nothing else in a command is a template, so that
`docker inspect -f '{{.Id}}'` keeps working. A shell reads a command, so there a value may consist
only of characters that mean nothing to it; any other goes through a variable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from pipecd_model.close_matches import find_close_matches
from pipecd_model.config.path import Path
from pipecd_model.errors import ConfigError

_NAMED: Final = r"\{\{\s*\.encryptedSecrets\.(?P<name>\w+)\s*\}\}"
_INDEXED: Final = (
    r"\{\{\s*index\s+\.encryptedSecrets\s+"
    r"(?:\"(?P<quoted>[^\"\\\n]+)\"|`(?P<raw>[^`]+)`)\s*\}\}"
)
_PLACEHOLDER: Final = re.compile(f"{_NAMED}|{_INDEXED}")
_ALIKE: Final = re.compile(r"\{\{[^{}]*\.encryptedSecrets\b[^{}]*\}\}")
_DASHED: Final = re.compile(r"\.encryptedSecrets\.(\w+(?:-\w+)+)")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


class BadPlaceholderError(ConfigError):
    """A secret that a stage names cannot be put there."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A text with secrets in it. Shows as it was written, with the placeholders."""

    written: str
    """For logs and messages."""
    text: str
    """For the process alone."""

    def __str__(self) -> str:
        return self.written

    def __repr__(self) -> str:
        return f"Opened(written={self.written!r})"


def names(text: str) -> tuple[str, ...]:
    """Returns the names of the secrets that a text names, each once, in order."""
    return tuple(dict.fromkeys(_name(found) for found in _PLACEHOLDER.finditer(text)))


def texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yields all texts in the options of a stage, at any depth, each with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from texts(item, (*path, index))


def problems(text: str, known: Collection[str]) -> list[BadPlaceholderError]:
    """Returns the errors in the placeholders of a text, without opening any secret."""
    found: list[BadPlaceholderError] = []
    for each in _ALIKE.finditer(text):
        exact = _PLACEHOLDER.fullmatch(each[0])
        if exact is None:
            found.append(_not_exact(each[0]))
        elif (name := _name(exact)) not in known:
            found.append(_unknown(name, known))
    return found


def open_command(text: str, values: Mapping[str, str]) -> Opened:
    """Put secrets into a command; raises BadPlaceholderError for one that the shell would read."""

    def value_of(name: str) -> str:
        value = values[name]
        if not _PLAIN.fullmatch(value):
            raise BadPlaceholderError(
                f"the secret {name!r} holds characters that mean something to a shell",
                hint=f"set a variable under env to {{{{ .encryptedSecrets.{name} }}}}"
                " and use the variable, in double quotes",
            )
        return value

    return _open(text, values, value_of)


def open_variable(text: str, values: Mapping[str, str]) -> Opened:
    """Put secrets into the value of an environment variable, whatever they hold."""

    def value_of(name: str) -> str:
        if "\0" in values[name]:
            raise BadPlaceholderError(
                f"the secret {name!r} holds a null character, which no variable can",
                hint="put it into a file with spec.encryption.decryptionTargets",
            )
        return values[name]

    return _open(text, values, value_of)


def _open(text: str, values: Mapping[str, str], value_of: Callable[[str], str]) -> Opened:
    for problem in problems(text, values):
        raise problem
    opened = _PLACEHOLDER.sub(lambda found: value_of(_name(found)), text)
    return Opened(written=text, text=opened)


def _name(found: re.Match[str]) -> str:
    return str(found["name"] or found["quoted"] or found["raw"])


def _not_exact(written: str) -> BadPlaceholderError:
    if dashed := _DASHED.search(written):
        return BadPlaceholderError(
            f'"-" is not allowed in a dotted name: {written}',
            hint=f'write {{{{ index .encryptedSecrets "{dashed[1]}" }}}}',
        )
    return BadPlaceholderError(
        f"a stage cannot do more with a secret than name it: {written}",
        hint="write {{ .encryptedSecrets.name }}, without functions and dashes",
    )


def _unknown(name: str, known: Collection[str]) -> BadPlaceholderError:
    near = find_close_matches(name, sorted(known), cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "add it to spec.encryption.encryptedSecrets"
    return BadPlaceholderError(f"there is no secret {name!r}", hint=hint)
