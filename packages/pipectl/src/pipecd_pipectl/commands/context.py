# SPDX-License-Identifier: Apache-2.0
"""`pipectl context …`: the control planes and projects that a person works with."""

import time
from collections.abc import Mapping

import click

from pipecd_model.errors import PipecdError
from pipecd_pipectl.completions import complete_contexts
from pipecd_pipectl.contexts import Context, ContextStore
from pipecd_pipectl.output import (
    echo,
    is_wide,
    list_option,
    output_option,
    print_data,
    print_fields,
    wants_data,
    when,
)
from pipecd_pipectl.tables import Column, print_table


@click.group()
def context() -> None:
    """Contexts: the control planes that you are signed in to."""


@context.command("list")
@list_option
def list_contexts(*, output: str) -> None:
    """List the contexts; the current one has a star."""
    store = ContextStore()
    current = store.find_current_name()
    found = {name: store.get(name) for name in store.list_names()}
    if wants_data(output):
        listed = [describe(name, each, current) for name, each in found.items()]
        print_data({"contexts": listed}, output)
    elif output == "name":
        for name in found:
            echo(name)
    elif found:
        _print_contexts(found, current, wide=is_wide(output))
    else:
        echo("no context; make one: pipectl login ADDRESS", err=True)


def _print_contexts(found: Mapping[str, Context], current: str, *, wide: bool) -> None:
    columns: list[Column[tuple[str, Context]]] = [
        Column(heading="CURRENT", cell=lambda it: "*" if it[0] == current else "", fixed=True),
        Column(heading="NAME", cell=lambda it: it[0], fixed=True),
        Column(heading="PROJECT", cell=lambda it: it[1].project),
        Column(heading="USER", cell=lambda it: it[1].subject),
        Column(heading="SIGNED IN", cell=lambda it: _session(it[1])),
        Column(heading="ADDRESS", cell=lambda it: _url(it[1]), wide=True),
        Column(heading="CERTIFICATES", cell=lambda it: it[1].cert_file, wide=True),
    ]
    print_table(columns, found.items(), wide=wide)


@context.command()
@click.argument("name", shell_complete=complete_contexts)
def use(name: str) -> None:
    """Make a context the current one."""
    ContextStore().use(name)
    echo(f"the current context is {name}")


@context.command()
@click.argument("name", required=False, shell_complete=complete_contexts)
@output_option
def show(name: str | None, *, output: str) -> None:
    """Show a context, or the current one."""
    store = ContextStore()
    current = store.find_current_name()
    name = name or current
    if not name:
        raise click.UsageError("there is no current context: pipectl login ADDRESS")
    found = store.get(name)
    if wants_data(output):
        print_data(describe(name, found, current), output)
        return
    print_fields(
        [
            ("name", name),
            ("current", "yes" if name == current else "no"),
            ("address", _url(found)),
            ("certificates", found.cert_file),
            ("project", found.project),
            ("user", found.subject),
            ("signed in", _session(found)),
        ]
    )


@context.command()
@click.argument("name", shell_complete=complete_contexts)
def delete(name: str) -> None:
    """Remove a context; its session must have been ended with `pipectl logout`."""
    store = ContextStore()
    try:
        found = store.get(name)
    except PipecdError as error:
        if error.status == "NOT_FOUND":
            raise
        found = None  # a file that cannot be read may go, whatever it held
    if found is not None and found.session and found.expires_at > time.time():
        raise click.UsageError(
            f"you are signed in in {name}: run `pipectl logout --context {name}` first"
        )
    store.delete(name)
    echo(f"deleted the context {name}")


@context.command()
@click.argument("name", shell_complete=complete_contexts)
@click.argument("new_name")
def rename(name: str, new_name: str) -> None:
    """Give a context another name."""
    ContextStore().rename(name, new_name)
    echo(f"renamed the context {name} to {new_name}")


def describe(name: str, found: Context, current: str) -> dict[str, str | bool | int]:
    """Returns what programs may know of a context: all but the session."""
    return {
        "name": name,
        "current": name == current,
        "address": found.address,
        "insecure": found.insecure,
        "certFile": found.cert_file,
        "project": found.project,
        "user": found.subject,
        "signedIn": bool(found.session) and found.expires_at > time.time(),
        "expiresAt": found.expires_at,
    }


def _url(found: Context) -> str:
    return f"{'http' if found.insecure else 'https'}://{found.address}"


def _session(found: Context) -> str:
    if not found.session:
        return "no"
    if found.expires_at <= time.time():
        return f"ended {when(found.expires_at)}"
    return f"until {when(found.expires_at)}"
