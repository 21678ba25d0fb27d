# SPDX-License-Identifier: Apache-2.0
"""How a plugin is started: the command line of upstream for a file, ours for a package.

A file gets exactly what a Go agent would give it, so that any plugin runs. A package is ours to
agree with: its configuration, which may hold secrets, comes on a descriptor that nobody else can
read. Both are invited to plugin management by a token in the environment, and get the one there
with which piped proves itself to them.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipecd_model.config import PluginConfig
from pipecd_runtime import process as door
from pipecd_runtime.orphans import MARK_VARIABLE, Mark
from pipecd_wire.headers import (
    PARENT_VARIABLE,
    PIPED_TOKEN_VARIABLE,
    PLUGIN_TOKEN_VARIABLE,
    SCRIPTS_VARIABLE,
)
from piped.plugins.fetch import Program

"""What piped sends with each of its calls. Only the plugin and we can read an environment."""
"""Where the records of scripts are, which outlive plugins and piped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to start."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """What it gets beside piped's own."""
    config: str | None = None
    """A text that it reads from a descriptor, whose number follows `--config-fd`."""

    @contextmanager
    def descriptors(self) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
        """The arguments with the descriptors they speak of, open while the block runs."""
        if self.config is None:
            yield self.arguments, ()
            return
        # In memory: nothing is left on a disk, and no writer has to wait for the reader.
        config = os.memfd_create("plugin-config")
        try:
            os.write(config, self.config.encode())
            os.lseek(config, 0, os.SEEK_SET)
            yield (*self.arguments, "--config-fd", str(config)), (config,)
        finally:
            os.close(config)


def command_of(
    plugin: PluginConfig,
    program: Program,
    *,
    service_port: int,
    port: int,
    token: str,
    mark: Mark,
    piped_token: str,
    scripts: Path,
    grace: float,
    wrapper: tuple[str, ...],
) -> Command:
    """The command of a plugin that shall serve on `port` and call piped on `service_port`."""
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
        arguments = (*start, "--grace-period", f"{grace:g}s")
        return Command(arguments=arguments, environment=environment, config=config)
    return Command(arguments=(*wrapper, *start, "--config", config), environment=environment)


async def death_wrapper() -> tuple[str, ...]:
    """A command that has what follows it killed when piped dies; empty where there is none.

    Plugins made with our SDK see to it themselves; others need this.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return ()
    wrapper = (setpriv, "--pdeathsig", "KILL", "--")
    # The one of busybox knows no such option.
    command = (door.word(setpriv), *door.own("--pdeathsig", "KILL", "--", "true"))
    probe = await door.start(command, env=door.choose_environment(["PATH"]))
    return wrapper if await probe.wait() == 0 else ()
