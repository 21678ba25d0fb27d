# SPDX-License-Identifier: Apache-2.0
"""How a plugin is started: the command line of upstream for a file, ours for a package.

A file gets exactly what a Go agent would give it, so that any plugin runs. A package is ours to
agree with: its configuration, which may hold secrets, comes on a descriptor that nobody else can
read. Both are invited to plugin management by a token in the environment, and get the one there
with which piped proves itself to them.
"""

import os
from pathlib import Path
from typing import Final

from pipecd_model.config import PluginConfig
from pipecd_runtime.orphans import MARK_VARIABLE, Mark
from pipecd_wire.headers import (
    CHAOS_PREFIX,
    PARENT_VARIABLE,
    PIPED_TOKEN_VARIABLE,
    PLUGIN_CACHE_VARIABLE,
    PLUGIN_TOKEN_VARIABLE,
    SCRIPTS_VARIABLE,
)
from piped.programs.command import Command
from piped.programs.fetch import FetchedProgram

INHERITED: Final = (PLUGIN_CACHE_VARIABLE, CHAOS_PREFIX)
"""What a plugin gets of piped's own variables, in addition to those that are made for it."""


def command_of(
    plugin: PluginConfig,
    program: FetchedProgram,
    *,
    service_port: int,
    port: int,
    token: str,
    mark: Mark,
    piped_token: str,
    scripts: Path,
    grace_seconds: float,
    wrapper: tuple[str, ...],
) -> Command:
    """Returns the command of a plugin that serves on `port` and calls piped on `service_port`."""
    start = (str(program.path), "start", "--piped-plugin-service", f"localhost:{service_port}")
    config = PluginConfig(
        name=plugin.name,
        url=program.url,
        port=port,
        config=plugin.config,
        deploy_targets=plugin.deploy_targets,
    ).start_json()
    environment = {
        PLUGIN_TOKEN_VARIABLE: token,
        MARK_VARIABLE: str(mark),
        PIPED_TOKEN_VARIABLE: piped_token,
        SCRIPTS_VARIABLE: str(scripts),
        PARENT_VARIABLE: str(os.getpid()),
    }
    if program.is_package:
        arguments = (*start, "--grace-period", f"{grace_seconds:g}s")
        return Command(
            arguments=arguments, environment=environment, inherited=INHERITED, config=config
        )
    return Command(
        arguments=(*wrapper, *start, "--config", config),
        environment=environment,
        inherited=INHERITED,
    )
