# SPDX-License-Identifier: Apache-2.0
"""The plugin's entry of the piped file, as piped hands it over at the start: one JSON object."""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pipecd_model.config import ConfigModel
from pipecd_sdk._glue.flags import Flags
from pipecd_sdk.config import Fault, OptionFaultsError, PluginConfig, TargetConfig, read_value
from pipecd_sdk.context import DeployTarget
from pipecd_sdk.plugin import StagePlugin

log = logging.getLogger(__name__)


class TargetEntry(ConfigModel):
    """One deploy target; its options stay as they are until the plugin's type reads them."""

    name: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    config: dict[str, Any] = msgspec.field(default_factory=dict)


class PluginEntry(ConfigModel):
    """The entry of a plugin in the configuration of piped."""

    name: str
    url: str = ""
    port: int = 0
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    deploy_targets: tuple[TargetEntry, ...] = ()


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What the entry says, in the plugin's own types."""

    name: str
    port: int
    targets: Mapping[str, DeployTarget] = msgspec.field(default_factory=dict)

    def find_targets(self, names: Sequence[str]) -> list[DeployTarget]:
        """Returns the deploy targets of these names. Raises KeyError for an unknown one."""
        return [self.targets[name] for name in names]


def read_entry(flags: Flags) -> str:
    """Returns the JSON text from the command line or the inherited file descriptor."""
    if flags.config is not None:
        return flags.config
    assert flags.config_fd is not None, "one of the two is required"  # noqa: S101 - for the checker
    with os.fdopen(flags.config_fd, encoding="utf-8") as given:
        return given.read()


def set_up(plugin: StagePlugin, text: str) -> Setup:
    """Decodes the entry and sets the plugin's options. Raises OptionFaultsError with all faults."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise OptionFaultsError([Fault(path="--config", message=f"not JSON: {error}")]) from None
    entry, _ = read_value(PluginEntry, raw, path=("plugin",))
    faults: list[Fault] = []
    if (kind := plugin.config_type()) is not None:
        try:
            _give_config(plugin, read_value(kind, entry.config, path=("config",)))
        except OptionFaultsError as error:
            faults += error.faults
    targets = {}
    for index, target in enumerate(entry.deploy_targets):
        try:
            config = _target_config(plugin, target, index)
        except OptionFaultsError as error:
            faults += error.faults
        else:
            targets[target.name] = DeployTarget(
                name=target.name, labels=target.labels, config=config
            )
    if plugin.needs_targets and not entry.deploy_targets:
        faults.append(
            Fault(
                path="deployTargets",
                message=f"the plugin {entry.name!r} needs at least one",
                hint="add one to its entry in the piped file",
            )
        )
    if faults:
        raise OptionFaultsError(faults)
    return Setup(name=entry.name, port=entry.port, targets=targets)


def _give_config(plugin: StagePlugin, read: tuple[PluginConfig, list[Fault]]) -> None:
    config, warnings = read
    for warning in warnings:
        log.warning("plugin.config: %s", warning)
    vars(plugin)["config"] = config  # declared by its class as an annotation only


def _target_config(plugin: StagePlugin, target: TargetEntry, index: int) -> TargetConfig:
    path = ("deployTargets", index, "config")
    config, warnings = read_value(plugin.target_config, target.config, path=path)
    for warning in warnings:
        log.warning("plugin.config: %s", warning)
    return config
