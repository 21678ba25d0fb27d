# SPDX-License-Identifier: Apache-2.0
"""`pipectl plugin`: for people who write plugins, in any language."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import click

from pipecd_pipectl.commands.pluginpush import push
from pipecd_pipectl.output import echo, output_option, print_fields, print_json, wants_json
from pipecd_pipectl.pluginfile.closure import BuildError
from pipecd_pipectl.pluginfile.pack import build as build_file
from pipecd_pipectl.skeleton import BadNameError, skeleton
from pipecd_sdk.conformance import (
    CaseOutcome,
    CaseVerdict,
    Profile,
    ProfileError,
    judge_plugin,
    load_cases,
    load_profile,
)

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_PREFIX = "pipecd-plugin-"
_COLOURS = {
    CaseOutcome.HOLDS: "green",
    CaseOutcome.BROKEN: "red",
    CaseOutcome.NOT_ASKED: "bright_black",
}


@click.group()
def plugin() -> None:
    """Write, test and ship plugins."""


plugin.add_command(push)


@plugin.command()
@click.argument("name")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Where to make it; without this, a folder of the plugin's name.",
)
def init(*, name: str, folder: Path | None) -> None:
    """Make the folder of a new plugin: it runs and is tested as it is.

    Its README has the commands to install, test and build it.
    """
    folder = folder or Path(name)
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{str(folder)!r} is not empty")
    try:
        files = list(skeleton(name))
    except BadNameError as error:
        raise click.UsageError(str(error)) from None
    for path, content in files:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        echo(str(target))


@plugin.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option(
    "--extra",
    "extras",
    metavar="NAME",
    multiple=True,
    help="Take along what this extra of the plugin needs; may be given several times.",
)
@click.option("--command", default="", help="The command to run, of a folder with several plugins.")
def build(*, folder: Path, output: Path, extras: Sequence[str], command: str) -> None:
    """Make one executable file of the plugin in FOLDER.

    An agent, upstream's too, can copy the file and run it where the same version of Python is on
    the PATH. What the plugin needs is taken as it is installed here.
    """
    try:
        made = build_file(folder.absolute(), output.absolute(), extras, command=command)
    except BuildError as error:
        raise click.ClickException(str(error)) from None
    needs = f"python{made.python} on the PATH"
    if made.machine:
        needs += f", on {made.machine} with the C library of this machine's kind"
    print_fields(
        [
            ("file", str(made.path)),
            ("size", f"{made.size / 2**20:.1f} MiB"),
            ("sha256", made.sha256),
            ("needs", needs),
            ("unpacks to", "$PIPECD_PLUGIN_CACHE, or ~/.cache/pipecd/plugins"),
        ]
    )


@plugin.command()
@click.option(
    "--profile",
    "profile_file",
    type=_FILE,
    help="A YAML file that tells how to run the plugin's stages.",
)
@click.option("--name", help="The plugin's name; without it the profile's or the command's.")
@click.option(
    "--as-go-agent", is_flag=True, help="Start it without our invitation to plugin management."
)
@click.option(
    "--patience",
    "patience_factor",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Stretch all limits, for a plugin that is slow by nature.",
)
@click.option(
    "--tools-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep installed programs here; NAME-VERSION there counts as installed.",
)
@output_option
@click.argument("command", nargs=-1, required=True)
@click.pass_context
def test(
    ctx: click.Context,
    *,
    profile_file: Path | None,
    name: str | None,
    as_go_agent: bool,
    patience_factor: float,
    tools_dir: Path | None,
    output: str,
    command: Sequence[str],
) -> None:
    """Start a plugin and see which promises it keeps.

    COMMAND is started as an agent starts a plugin's file, and spoken to over gRPC alone: the
    language it is written in does not matter. Exits with 1 when a promise is broken.

    Example: pipectl plugin test --profile conformance.yaml -- ./my-plugin
    """
    profile = _profile(profile_file, name, command)
    as_json = wants_json(output)
    judging = judge_plugin(
        command,
        profile,
        load_cases(),
        invite=not as_go_agent,
        patience_factor=patience_factor,
        tools=tools_dir.absolute() if tools_dir else None,
    )
    verdicts = asyncio.run(_print_verdicts(judging, quiet=as_json))
    broken = [each for each in verdicts if each.outcome is CaseOutcome.BROKEN]
    held = [each for each in verdicts if each.outcome is CaseOutcome.HOLDS]
    if as_json:
        print_json({"plugin": profile.name, "cases": [_as_json(each) for each in verdicts]})
    else:
        asked = len(broken) + len(held)
        echo(f"{len(held)} of {asked} promises hold, {len(verdicts) - asked} were not asked for")
    ctx.exit(1 if broken else 0)


def _profile(file: Path | None, name: str | None, command: Sequence[str]) -> Profile:
    if file is None:
        return Profile(name=name or Path(command[0]).name.removeprefix(_PREFIX))
    try:
        profile = load_profile(file)
    except ProfileError as error:
        raise click.UsageError(str(error)) from None
    return profile if name is None else profile.rename(name)


async def _print_verdicts(judging: AsyncIterator[CaseVerdict], *, quiet: bool) -> list[CaseVerdict]:
    """All verdicts, each shown as soon as it is there."""
    part = ""
    verdicts = []
    async for verdict in judging:
        verdicts.append(verdict)
        if quiet:
            continue
        if verdict.case.part != part:
            part = verdict.case.part
            echo(click.style(part, bold=True))
        _show(verdict)
    return verdicts


def _show(verdict: CaseVerdict) -> None:
    colour = _COLOURS[verdict.outcome]
    outcome = click.style(verdict.outcome.value.ljust(10), fg=colour)
    stage = f"{verdict.stage} " if verdict.stage else ""
    echo(f"  {outcome} {stage}{verdict.case.promise}")
    for text in verdict.reason.splitlines():
        echo(click.style(f"             {text}", fg=colour))


def _as_json(verdict: CaseVerdict) -> dict[str, str]:
    return {
        "part": verdict.case.part,
        "id": verdict.case.id,
        "promise": verdict.case.promise,
        "stage": verdict.stage,
        "outcome": verdict.outcome.name,
        "reason": verdict.reason,
    }
