# SPDX-License-Identifier: Apache-2.0
"""The subcommands of `pipecd` that are imported only when they are run.

Those of this distribution are listed here; others come from distributions beside it, which name
their commands in the entry-point group `pipecd.commands`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from pipecd_model.errors import StateError
from pipecd_runtime.lazy_commands import CommandEntry, LazyGroup

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "pipecd.commands"

BUILT_IN: Final = (
    CommandEntry(
        "backup",
        "pipecd_controlplane.ops.commands:backup",
        "Copy everything the server keeps into one file.",
    ),
    CommandEntry(
        "move",
        "pipecd_controlplane.serve.move_command:move",
        "Move everything that a stopped server keeps to another database or blob store.",
    ),
    CommandEntry(
        "project",
        "pipecd_controlplane.serve.projects:project",
        "Projects of a server that is stopped.",
    ),
    CommandEntry(
        "restore",
        "pipecd_controlplane.ops.commands:restore",
        "Make a data folder from a backup, for a server to be started in.",
    ),
    CommandEntry(
        "server",
        "pipecd_controlplane.serve.server_command:server",
        "Run the control plane until it is told to stop (SIGTERM, Ctrl-C).",
    ),
    CommandEntry(
        "sign-in-link",
        "pipecd_controlplane.ops.commands:sign_in_link",
        "Print a link that signs a browser on this machine in, once.",
    ),
    CommandEntry(
        "take-over-objects",
        "pipecd_controlplane.serve.objects_command:take_over_objects",
        "Let a restored server seal and delete objects: no other server uses them any more.",
    ),
)


class OptionalCommand(NamedTuple):
    """A command of another distribution of ours, which is always listed."""

    distribution: str
    short_help: str


OPTIONAL: Final = {
    "quickstart": OptionalCommand(
        "pipecd-quickstart",
        "Start control plane, piped and plugins here, and make a first deployment.",
    )
}


def find_installed() -> Iterable[EntryPoint]:
    """Returns the commands that the installed distributions offer."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow; commands of ours need none

    return entry_points(group=GROUP)


class LazyCommands(LazyGroup):
    """The commands of this distribution, and those that are installed beside it."""

    def __init__(
        self,
        *arguments: Any,
        find: Callable[[], Iterable[EntryPoint]] = find_installed,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, entries=BUILT_IN, **options)
        self._find = find
        self._entries: dict[str, CommandEntry] | None = None

    def find_entries(self) -> dict[str, CommandEntry]:
        if self._entries is None:
            found = {each.name: each for each in map(_make_entry, self._find())}
            self._entries = {**found, **super().find_entries()}
        return self._entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *OPTIONAL})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (command := super().get_command(ctx, cmd_name)) is None and cmd_name in OPTIONAL:
            return _make_placeholder(cmd_name, OPTIONAL[cmd_name].distribution)
        return command


def _make_entry(found: EntryPoint) -> CommandEntry:
    known = OPTIONAL.get(found.name)
    return CommandEntry(
        found.name, f"{found.module}:{found.attr}", known.short_help if known else ""
    )


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
