# SPDX-License-Identifier: Apache-2.0
"""The subcommands of `pipecd` that are imported only when they are run.

Those of this distribution are listed here; others come from distributions beside it, which name
their commands in the entry-point group `pipecd.commands`.
"""

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import click

from pipecd_model.errors import StateError

GROUP: Final = "pipecd.commands"

BUILT_IN: Final = tuple(
    EntryPoint(name=name, value=value, group=GROUP)
    for name, value in {
        "backup": "pipecd_controlplane.ops.commands:backup",
        "project": "pipecd_controlplane.serve.projects:project",
        "restore": "pipecd_controlplane.ops.commands:restore",
        "server": "pipecd_controlplane.serve.server_command:server",
    }.items()
)

OPTIONAL: Final = {"quickstart": "pipecd-quickstart"}
"""Commands that are always listed, and the distribution that has each of them."""


def find_installed() -> Iterable[EntryPoint]:
    """Returns the commands that the installed distributions offer."""
    return entry_points(group=GROUP)


class LazyCommands(click.Group):
    """A group of commands, some of which are found only when they are asked for."""

    def __init__(
        self,
        *arguments: Any,
        find: Callable[[], Iterable[EntryPoint]] = find_installed,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._find = find

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._entries(), *OPTIONAL})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (command := super().get_command(ctx, cmd_name)) is not None:
            return command
        if (entry := self._entries().get(cmd_name)) is not None:
            loaded: click.Command = entry.load()
            return loaded
        if cmd_name in OPTIONAL:
            return _make_placeholder(cmd_name, OPTIONAL[cmd_name])
        return None

    def _entries(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in (*self._find(), *BUILT_IN)}


def _make_placeholder(name: str, distribution: str) -> click.Command:
    """Returns a command that says which distribution to install."""

    @click.command(
        name,
        short_help=f"Not installed: it is in {distribution}.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
    )
    def explain() -> None:
        raise StateError(
            f"`pipecd {name}` is not installed", hint=f"run `pip install {distribution}`"
        )

    return explain
