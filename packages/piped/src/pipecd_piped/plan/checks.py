# SPDX-License-Identifier: Apache-2.0
"""Checks of an application before its first stage: its secrets, and its options by the plugins.

All faults are reported at once, each with its line and column in the application file.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pipecd_model.config import ApplicationConfig, ConfigFaultsError, Fault
from pipecd_model.config.locate import Positions
from pipecd_model.config.path import Path, format_path
from pipecd_model.secrets.placeholder import names, problems, texts
from pipecd_piped.plan.protocols import PluginCalls
from pipecd_piped.plan.stages import config_bytes
from pipecd_piped.secrets import OpenedSecrets
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource

_SECRETS: Final[Path] = ("spec", "encryption", "encryptedSecrets")
_STAGES: Final[Path] = ("spec", "pipeline", "stages")
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


async def check(
    config: ApplicationConfig,
    source: DeploymentSource,
    opened: OpenedSecrets,
    chosen: Mapping[int, PluginCalls],
    plugins: Sequence[PluginCalls],
    targets: Mapping[str, Sequence[str]],
) -> None:
    """Raise ConfigFaultsError with everything that keeps the application from being deployed.

    `targets` has the names of its deploy targets, by plugin.
    """
    report = _FaultReport(source)
    _check_secrets(config, opened, report)
    for plugin in plugins:
        stages = [stage for stage in config.pipeline.stages if chosen.get(stage.index) is plugin]
        section = config.plugins.get(plugin.name)
        answer = await plugin.check_config(
            plugin_pb2.CheckConfigRequest(
                application_config=b"" if section is None else json.dumps(section).encode(),
                stages=[
                    plugin_pb2.StageConfig(
                        name=stage.name, index=stage.index, config=config_bytes(stage)
                    )
                    for stage in stages
                ],
                deploy_targets=targets.get(plugin.name, ()),
            )
        )
        for fault in answer.faults if answer is not None else ():
            report.add(_whole_path(plugin.name, fault.path), fault.message, fault.hint)
    if report.faults:
        raise ConfigFaultsError(report.faults)


def _check_secrets(
    config: ApplicationConfig, opened: OpenedSecrets, report: "_FaultReport"
) -> None:
    encryption = config.encryption
    known = encryption.encrypted_secrets if encryption is not None else {}
    named: set[str] = (
        set(known) if encryption is not None and encryption.decryption_targets else set()
    )
    for stage in config.pipeline.stages:
        for path, text in texts(stage.with_, (*_STAGES, stage.index, "with")):
            named.update(names(text))
            for problem in problems(text, known):
                report.add(path, str(problem), problem.hint)
    for name in known:
        if name in named and (why := opened.problems.get(name)) is not None:
            message = f"the secret {name!r} cannot be opened: {why}"
            report.add((*_SECRETS, name), message, why.hint)


def _whole_path(plugin: str, path: str) -> Path:
    """Returns the path in the application file of a fault whose path a plugin has reported.

    A path that begins with `stages` is one of the pipeline, `deployTargets` means those of the
    plugin, any other one is of the plugin's own section.
    """
    if path == "deployTargets":
        return ("spec", path, plugin)
    steps = tuple(
        int(index) if index else key for index, key in (each.groups() for each in _find_steps(path))
    )
    if steps[:1] == ("stages",):
        return ("spec", "pipeline", *steps)
    return ("spec", "plugins", plugin, *steps)


def _find_steps(path: str) -> Iterable[re.Match[str]]:
    return _STEP.finditer(path)


class _FaultReport:
    """Collects faults with their positions in the application file."""

    def __init__(self, source: DeploymentSource) -> None:
        self._file = source.application_config_filename
        self._text = source.application_config.decode(errors="replace")
        self.faults: list[Fault] = []

    def add(self, path: Path, message: str, hint: str) -> None:
        # A file of a single line was written by a program: a position in it helps no reader.
        has_lines = "\n" in self._text.strip()
        line, column = Positions(self._text).value(path) if has_lines else (0, 0)
        self.faults.append(
            Fault(
                file=self._file,
                line=line,
                column=column,
                path=format_path(path),
                message=message,
                hint=hint,
            )
        )
