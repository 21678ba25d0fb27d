# SPDX-License-Identifier: Apache-2.0
"""A piped as people read it: a line of a table, and a page with its plugins."""

import time
from collections.abc import Sequence

import click

from pipecd_pipectl.output import echo, print_fields, wrap_text
from pipecd_pipectl.statuses import COLOURS, connection_name
from pipecd_pipectl.tables import Column, print_table, shorten_ids
from pipecd_pipectl.times import format_age, format_moment, when
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.push import push_pb2

Item = api_pb2.ListPipedsResponse.Item


def print_pipeds(items: Sequence[Item], *, wide: bool) -> None:
    """Prints a table of pipeds, by name."""
    short = {} if wide else shorten_ids(each.piped.id for each in items)
    now = time.time()
    columns: list[Column[Item]] = [
        Column(heading="NAME", cell=lambda it: it.piped.name),
        Column(
            heading="STATUS",
            cell=lambda it: connection_name(it.piped),
            colour=lambda it: COLOURS.get(connection_name(it.piped)),
            fixed=True,
        ),
        Column(heading="VERSION", cell=lambda it: it.piped.version),
        Column(heading="STARTED", cell=lambda it: format_age(it.piped.started_at, now), fixed=True),
        Column(heading="ID", cell=lambda it: short.get(it.piped.id, it.piped.id), fixed=True),
        Column(heading="SINCE", cell=lambda it: when(it.piped.started_at), wide=True),
        Column(heading="DESCRIPTION", cell=lambda it: it.piped.desc, wide=True),
        Column(heading="PLUGINS", cell=lambda it: ", ".join(list_plugins(it))),
    ]
    print_table(columns, sorted(items, key=lambda it: (it.piped.name, it.piped.id)), wide=wide)
    for item in items:
        for alarm in item.alarms:
            echo(wrap_text(f"{item.piped.name}: {alarm}", first="! "), err=True)


def print_piped(item: Item, *, wide: bool) -> None:
    """Prints the page of a piped."""
    now = time.time()
    piped = item.piped
    word = connection_name(piped)
    echo(
        f"{click.style(piped.name, bold=True)}"
        f"  {click.style(word, fg=COLOURS.get(word), bold=True)}"
    )
    echo()
    print_fields(
        [
            ("id", piped.id),
            ("description", piped.desc),
            ("version", piped.version),
            ("started", format_moment(piped.started_at, now)),
            ("registered", format_moment(piped.created_at, now)),
            ("repositories", ", ".join(f"{it.id} ({it.remote})" for it in piped.repositories)),
            *(("alarm", alarm) for alarm in item.alarms),
        ]
    )
    plugins = _describe_plugins(item)
    if plugins:
        echo()
        columns: list[Column[tuple[str, str, str, str]]] = [
            Column(heading="PLUGIN", cell=lambda it: it[0], fixed=True),
            Column(
                heading="STATE",
                cell=lambda it: it[1],
                colour=lambda it: {"READY": "green", "FAILED": "red"}.get(it[1]),
                fixed=True,
            ),
            Column(heading="TARGETS", cell=lambda it: it[2]),
            Column(heading="REASON", cell=lambda it: it[3]),
        ]
        print_table(columns, plugins, wide=wide)


def name_pipeds(items: Sequence[Item]) -> list[str]:
    """Returns what a command takes for each: its name, or its id where names are shared."""
    names = [each.piped.name for each in items]
    return [
        each if names.count(each) == 1 else it.piped.id
        for each, it in zip(names, items, strict=True)
    ]


def list_plugins(item: Item) -> list[str]:
    """Returns what it deploys with: an agent of another make says only which plugins it has.

    One of the older generation has platform providers instead.
    """
    told = {plugin.name for plugin in item.plugins}
    return [
        *(_format_plugin(plugin) for plugin in item.plugins),
        *(plugin.name for plugin in item.piped.plugins if plugin.name not in told),
        *(each.name for each in item.piped.platform_providers),
    ]


def _format_plugin(plugin: push_pb2.PluginState) -> str:
    state = push_pb2.PluginState.State.Name(plugin.state).lower()
    return plugin.name if state == "ready" else f"{plugin.name} ({state}: {plugin.reason})"


def _describe_plugins(item: Item) -> list[tuple[str, str, str, str]]:
    """Returns name, state, targets and reason of each plugin."""
    targets = {plugin.name: ", ".join(plugin.deploy_targets) for plugin in item.piped.plugins}
    states = {plugin.name: plugin for plugin in item.plugins}
    return [
        (
            name,
            push_pb2.PluginState.State.Name(states[name].state) if name in states else "",
            targets.get(name, ""),
            states[name].reason if name in states else "",
        )
        for name in dict.fromkeys([*states, *targets])
    ]
