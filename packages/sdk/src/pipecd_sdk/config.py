# SPDX-License-Identifier: Apache-2.0
"""The options that people write for a plugin: declared as structs, decoded with all their faults.

The rules of spelling (any case of a key, Go durations, zero means the default) are those of all our
files and come from `pipecd_model.config`.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from pipecd_model.config import ConfigModel, Finding, Report, decode
from pipecd_model.config.path import Path, format_path
from pipecd_model.errors import ConfigError, add_hint

MOST_SHOWN: Final = 20
"""Faults in one message: it travels in a header, and headers have a limit."""
LONGEST_SHOWN: Final = 300
PIPEDS_KEYS: Final = frozenset({"timeout", "skipon"})


class StageConfig(ConfigModel):
    """The options of a stage, what stands under its `with`.

    A field without a default must be given and must not be empty. Rules between fields, or about
    the value of one, go into `check`; they are asked when a deployment is planned.

    Example:
        class WaitConfig(StageConfig):
            duration: Duration

            def check(self, report: Report) -> None:
                if not report.is_broken("duration") and self.duration < Duration():
                    report.fault("duration", message="must be longer than 0s")
    """

    @classmethod
    def prepare(cls, raw: dict[str, Any], report: Report) -> dict[str, Any]:
        """Returns the options without those that piped reads for every stage.

        Older files have them under `with`.
        """
        mine = {each.encode_name.lower() for each in msgspec.structs.fields(cls)}
        return {
            key: value
            for key, value in raw.items()
            if key.lower() not in PIPEDS_KEYS or key.lower() in mine
        }


class PluginConfig(ConfigModel):
    """The options of a plugin in the piped file, under `spec.plugins[].config`.

    Example:
        class ScriptRun(StagePlugin):
            config: ScriptRunConfig  # decoded before the first call
    """


class TargetConfig(ConfigModel):
    """The options of a deploy target, under `spec.plugins[].deployTargets[].config`.

    Example:
        class FilesTarget(TargetConfig):
            path: str

        class Files(DeploymentPlugin):
            target_config = FilesTarget  # target.config is one
    """


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault in options that a person wrote: where it is, what is wrong, and what to do about it.

    Example:
        Fault(path="stages[0].with.duration", message="must be longer than 0s")
    """

    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return add_hint(f"{self.path}: {self.message}", self.hint)


class OptionFaultsError(ConfigError):
    """Options that cannot be used; carries everything that is wrong in them."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        shown = [_cut(str(fault)) for fault in self.faults[:MOST_SHOWN]]
        if (more := len(self.faults) - len(shown)) > 0:
            shown.append(f"and {more} more")
        super().__init__("\n".join(shown))


C = TypeVar("C", bound=ConfigModel)


def read(cls: type[C], text: bytes, *, path: Path) -> tuple[C, list[Fault]]:
    """Decodes JSON into a struct; returns it with the warnings for its author.

    `path` is where this stands in the author's file. Raises OptionFaultsError. No text at all means
    that no options are given.
    """
    try:
        raw = json.loads(text) if text else {}
    except ValueError as error:
        fault = Fault(path=format_path(path), message=f"not JSON: {error}")
        raise OptionFaultsError([fault]) from None
    return read_value(cls, raw, path=path)


def read_value(cls: type[C], raw: Any, *, path: Path) -> tuple[C, list[Fault]]:
    """Decodes a plain value into a struct. Raises OptionFaultsError."""
    value, findings = decode(cls, raw, path=path)
    if value is None:
        raise OptionFaultsError(_fault(finding) for finding in findings.faults)
    return value, [_fault(finding) for finding in findings.warnings]


def _fault(finding: Finding) -> Fault:
    return Fault(path=format_path(finding.path), message=finding.message, hint=finding.hint)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
