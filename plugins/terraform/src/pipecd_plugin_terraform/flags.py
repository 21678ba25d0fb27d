# SPDX-License-Identifier: Apache-2.0
"""The flags that authors give to commands: which are refused, and which belong to a plan. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

PLANNING: Final = frozenset(
    {"var", "var-file", "target", "replace", "refresh", "refresh-only", "destroy", "exclude"}
)
"""Flags that decide what a plan says: a plan that was saved already takes none of them."""
_VALUED: Final = frozenset({"var", "var-file", "target", "replace", "exclude"})
"""Those of them whose value may be the next word."""
_OURS: Final = {
    "json": "",
    "out": "the plan is saved where TERRAFORM_APPLY finds it",
    "state": "name the state in the backend",
    "state-out": "name the state in the backend",
    "backup": "",
    "chdir": "the application's folder is where the commands run",
    "detailed-exitcode": "",
    "generate-config-out": "",
    "help": "",
    "migrate-state": "migrate the state by hand",
    "force-copy": "migrate the state by hand",
    "from-module": "",
    "show-sensitive": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagFault:
    """Why a flag is refused."""

    message: str
    hint: str = ""


def find_flag_fault(flag: str) -> FlagFault | None:
    """Returns why a flag cannot be given, None when it can be. Shows no values."""
    if not flag or "\0" in flag:
        return FlagFault(message="is not a flag")
    name = flag_name(flag)
    if name in _OURS:
        return FlagFault(message=f"-{name} is the plugin's own", hint=_OURS[name])
    return None


def flag_name(flag: str) -> str:
    """Returns the name of a flag, an empty text for a word that is none.

    Example:
        >>> flag_name("-var=a=b"), flag_name("--target"), flag_name("word")
        ('var', 'target', '')
    """
    return flag.lstrip("-").partition("=")[0] if flag.startswith("-") else ""


def split_planning(flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the flags that decide what a plan says, and the others.

    Example:
        >>> split_planning(["-target", "a.b", "-parallelism=3"])
        (['-target', 'a.b'], ['-parallelism=3'])
    """
    planning: list[str] = []
    others: list[str] = []
    for group in _groups(flags):
        (planning if flag_name(group[0]) in PLANNING else others).extend(group)
    return planning, others


def iter_var_files(flags: Sequence[str]) -> Iterator[str]:
    """Yields the files with variables that flags name.

    Example:
        >>> list(iter_var_files(["-var-file=a.tfvars", "-var-file", "b.tfvars"]))
        ['a.tfvars', 'b.tfvars']
    """
    for group in _groups(flags):
        if flag_name(group[0]) == "var-file":
            yield group[1] if len(group) > 1 else group[0].partition("=")[2]


def iter_backend_files(flags: Sequence[str]) -> Iterator[str]:
    """Yields the files with a backend's settings that flags name: values without `=`."""
    for flag in flags:
        value = flag.partition("=")[2]
        if flag_name(flag) == "backend-config" and value and "=" not in value:
            yield value


def _groups(flags: Sequence[str]) -> Iterator[tuple[str, ...]]:
    words = iter(flags)
    for word in words:
        if flag_name(word) in _VALUED and "=" not in word:
            value = next(words, None)
            yield (word,) if value is None else (word, value)
        else:
            yield (word,)
