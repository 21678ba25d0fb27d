# SPDX-License-Identifier: Apache-2.0
"""Builds the command line of a plugin: upstream's for an executable file, ours for a package.

A file gets exactly the arguments of the Go agent, so that any plugin runs. A package is made with
our SDK: it reads its configuration, which may contain secrets, from a descriptor that no other
process can read. Both get two tokens in the environment: one with which they authenticate to plugin
management, and one with which piped authenticates to them.
"""

import os
from pathlib import Path
from typing import Final

from pipecd_model.config import PluginConfig
from pipecd_piped.programs.command import Command
from pipecd_piped.programs.fetch import FetchedProgram
from pipecd_runtime.orphans import MARK_VARIABLE, Mark
from pipecd_wire.headers import (
    CHAOS_PREFIX,
    PARENT_VARIABLE,
    PIPED_TOKEN_VARIABLE,
    PLUGIN_CACHE_VARIABLE,
    PLUGIN_TOKEN_VARIABLE,
    SCRIPTS_VARIABLE,
)

INHERITED: Final = (PLUGIN_CACHE_VARIABLE, CHAOS_PREFIX)
"""Prefixes of piped's own environment variables that a plugin inherits."""


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
