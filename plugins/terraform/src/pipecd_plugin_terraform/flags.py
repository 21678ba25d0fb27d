# SPDX-License-Identifier: Apache-2.0
"""The flags that authors give to commands: which are refused, and which belong to a plan. Pure."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

PLANNING: Final = frozenset(
    {
        *("var", "var-file", "target", "target-file", "replace", "exclude", "exclude-file"),
        *("refresh", "refresh-only", "destroy"),
    }
)
"""Flags that decide what a plan says: a plan that was saved already takes none of them."""
_VALUED: Final = PLANNING - {"refresh", "refresh-only", "destroy"} | {"backend-config"}
"""Flags whose value may be the next word."""
_FILES: Final = {
    "var-file": "the file of variables",
    "target-file": "the file of targets",
    "exclude-file": "the file of targets",
    "backend-config": "the file of the backend",
}
"""Flags whose value is a file."""
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


def find_flag_faults(flags: Sequence[str]) -> Iterator[tuple[int, FlagFault]]:
    """Yields the flags that cannot be given, by their places. Shows no values.

    Example:
        >>> [index for index, _ in find_flag_faults(["-target", "a.b", "elsewhere", "-out=x"])]
        [2, 3]
    """
    takes_value = False
    for index, flag in enumerate(flags):
        name = flag_name(flag)
        if name in _OURS:
            yield index, FlagFault(message=f"-{name} is the plugin's own", hint=_OURS[name])
        elif "\0" in flag or not (name or (flag and takes_value and not flag.startswith("-"))):
            yield index, FlagFault(message="is not a flag", hint="flags begin with -")
        takes_value = bool(name) and "=" not in flag


def read_flags_of_variable(name: str, value: str) -> list[str]:
    """Returns the flags in TF_CLI_ARGS and its like, none of another variable. Raises ValueError.

    Example:
        >>> read_flags_of_variable("TF_CLI_ARGS_plan", "-target=a.b -lock=false")
        ['-target=a.b', '-lock=false']
    """
    return shlex.split(value) if name.startswith("TF_CLI_ARGS") else []


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


def iter_named_files(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the files that flags name, and what they are.

    Example:
        >>> list(iter_named_files(["-var-file=a", "-backend-config", "b", "-backend-config=k=v"]))
        [('a', 'the file of variables'), ('b', 'the file of the backend')]
    """
    for group in _groups(flags):
        name = flag_name(group[0])
        value = group[1] if len(group) > 1 else group[0].partition("=")[2]
        is_setting = name == "backend-config" and "=" in value
        if name in _FILES and value and not is_setting:
            yield value, _FILES[name]


def _groups(flags: Sequence[str]) -> Iterator[tuple[str, ...]]:
    words = iter(flags)
    for word in words:
        if flag_name(word) in _VALUED and "=" not in word:
            value = next(words, None)
            yield (word,) if value is None else (word, value)
        else:
            yield (word,)
