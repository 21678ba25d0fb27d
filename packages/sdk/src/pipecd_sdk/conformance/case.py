# SPDX-License-Identifier: Apache-2.0
"""The case files: what is asked of a plugin, step by step, and what must come back."""

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

CASES: Final = Path(__file__).parent / "cases"


class CaseFileError(ValueError):
    """A case file is not what it should be."""


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that must be true of the values at a path of the answer."""

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
    """What it may answer; `ANSWERED` stands for everything but a lost connection and silence."""
    check: tuple[Check, ...] = ()
    keep: str = ""
    """The name under which a later step finds this answer."""
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
    """All cases of a folder, in the order of the files; the file's name is their part."""
    found: list[Case] = []
    for file in sorted(folder.glob("*.yaml")):
        try:
            cases = msgspec.yaml.decode(file.read_bytes(), type=tuple[Case, ...], strict=True)
        except msgspec.ValidationError as error:
            raise CaseFileError(f"{file.name}: {error}") from None
        part = file.stem.partition("-")[2].replace("-", " ")
        found += [msgspec.structs.replace(case, part=part) for case in cases]
    return found
