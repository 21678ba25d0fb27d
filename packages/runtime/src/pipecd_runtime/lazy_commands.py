# SPDX-License-Identifier: Apache-2.0
"""A click group whose commands are imported only when they run.

The registry of a program has one entry per command; `--help`, completion and "did you mean" are
answered from it alone, so that they are fast however many commands there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class CommandEntry(NamedTuple):
    """One command of a registry."""

    name: str
    target: str
    """`module:attribute` of the click command."""
    short_help: str = ""
    """What `--help` shows beside the name; if it is empty, the command is imported to know it."""
    section: str = "Commands"
    """The heading under which `--help` lists it."""

    def load(self) -> click.Command:
        """Returns the command; imports its module."""
        module, _, attribute = self.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


class LazyGroup(click.Group):
    """A group with a registry. Commands added in place are listed after those of the registry."""

    def __init__(
        self, *arguments: Any, entries: Sequence[CommandEntry] = (), **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._registry = {entry.name: entry for entry in entries}

    def find_entries(self) -> Mapping[str, CommandEntry]:
        """Returns the registry, in the order in which it is listed; a subclass may add to it."""
        return self._registry

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.find_entries(), *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (command := super().get_command(ctx, cmd_name)) is not None:
            return command
        entry = self._registry.get(cmd_name) or self.find_entries().get(cmd_name)
        return None if entry is None else entry.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            # click knows only the commands that are imported already.
            known = self.list_commands(ctx)
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=known, ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        section = "Commands"
        for name in self.list_commands(ctx):
            if (entry := self.find_entries().get(name)) is not None:
                section = entry.section
            sections.setdefault(section, []).append((name, self._short_help(ctx, name)))
        widest = max((len(name) for rows in sections.values() for name, _ in rows), default=0)
        for heading, rows in sections.items():
            with formatter.section(heading):
                # Every section has the same columns, as if it were one list.
                formatter.write_dl([(name.ljust(widest), text) for name, text in rows])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only to complete

        found = [
            CompletionItem(name, help=self._short_help(ctx, name))
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def _short_help(self, ctx: click.Context, name: str) -> str:
        entry = self.find_entries().get(name)
        if entry is not None and entry.short_help:
            return entry.short_help
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(_LONGEST)


_LONGEST = 100
"""Characters of a short help; click's own 45 cut most sentences."""
