# SPDX-License-Identifier: Apache-2.0
"""The case files: the calls to a plugin, step by step, and the responses it must give."""

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

CASES: Final = Path(__file__).parent / "cases"


class CaseFileError(ValueError):
    """A case file is wrong."""


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule that the values at a path of the response must keep."""

    path: str
    must: str
    """A rule of `checks.py`."""
    value: Any = None


class CaseStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do. `within` limits it, in seconds."""

    do: Literal["call", "begin", "cancel", "end", "kill", "stop", "start", "log", "ready"]
    rpc: str = ""
    request: Any = None
    status: tuple[str, ...] = ("OK",)
    """Statuses it may return; `ANSWERED` stands for all but a lost connection and a timeout."""
    check: tuple[Check, ...] = ()
    keep: str = ""
    """The name under which a later step finds this response."""
    within: float = 30.0


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A promise, and the steps that show whether it is kept."""

    id: str
    promise: str
    steps: tuple[CaseStep, ...]
    needs: tuple[str, ...] = ()
    """What the plugin, or its profile, must offer for the case to make sense."""
    each_stage: bool = False
    """Is it walked for each stage of the profile?"""
    part: str = ""


def load_cases(folder: Path = CASES) -> list[Case]:
    """Returns all cases of a folder, in the order of the files; the file's name is their part."""
    found: list[Case] = []
    for file in sorted(folder.glob("*.yaml")):
        try:
            cases = msgspec.yaml.decode(file.read_bytes(), type=tuple[Case, ...], strict=True)
        except msgspec.ValidationError as error:
            raise CaseFileError(f"{file.name}: {error}") from None
        part = file.stem.partition("-")[2].replace("-", " ")
        found += [msgspec.structs.replace(case, part=part) for case in cases]
    return found
