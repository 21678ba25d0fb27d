# SPDX-License-Identifier: Apache-2.0
"""`pipectl window …`: when deployments may begin, and the emergency stop."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import click
from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_pipectl.client import Client, idempotency_key, use_client
from pipecd_pipectl.lookup import find_application, find_deployment
from pipecd_pipectl.options import DURATION, PAIR, dry_run_option, say_dry_run
from pipecd_pipectl.output import (
    echo,
    is_wide,
    list_option,
    output_option,
    print_data,
    wants_data,
    when,
    wrap_text,
)
from pipecd_pipectl.tables import Column, print_table
from pipecd_pipectl.times import format_duration
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.pipecd.api import windows_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import Window
from pipecd_wire.rpc import call

EFFECTS: Final = {Window.ALLOW: "allow", Window.DENY: "deny"}

label_option = click.option(
    "--label", "labels", type=PAIR, multiple=True, help="K:V, may be repeated: those that have it."
)
application_option = click.option(
    "--application", "application", default="", help="One application, by name or id."
)
reason_option = click.option("--reason", required=True, help="Shown to everyone who wonders.")


@click.group()
def window() -> None:
    """Windows: when deployments may begin, and the emergency stop.

    New deployments wait until they may begin; `pipectl why` says for what. Rollbacks are never
    stopped. Where windows that allow apply, deployments begin only within one of them; deny wins.
    """


@window.command("set")
@click.argument("name")
@click.option("--allow", "effect", flag_value=int(Window.ALLOW), type=int, help="They may begin.")
@click.option("--deny", "effect", flag_value=int(Window.DENY), type=int, help="They may not.")
@click.option(
    "--start", required=True, metavar="TIME", help="The first start: 2026-11-16T09:00:00, local."
)
@click.option("--for", "duration", required=True, type=DURATION, help="How long, e.g. 8h.")
@click.option("--rule", default="", help="How it recurs: FREQ=WEEKLY;BYDAY=MO,TU. Else it is once.")
@click.option("--zone", default="UTC", show_default=True, help="The time zone: Europe/Berlin.")
@application_option
@label_option
@click.option("--reason", default="", help="Shown to everyone who wonders.")
@dry_run_option
@output_option
@use_client
async def set_window(
    client: Client,
    *,
    name: str,
    effect: int | None,
    start: str,
    duration: timedelta,
    rule: str,
    zone: str,
    application: str,
    labels: tuple[tuple[str, str], ...],
    reason: str,
    dry_run: bool,
    output: str,
) -> None:
    """Add a window, or replace the one of this name.

    \b
    pipectl window set nights --deny --start 2026-11-16T22:00:00 --for 8h \\
      --rule FREQ=DAILY --zone Europe/Berlin --label env:prod
    """
    if effect is None:
        raise click.UsageError("give --allow or --deny")
    if application and labels:
        raise click.UsageError("--application and --label exclude each other")
    wanted = Window(
        name=name,
        effect=Window.Effect.ValueType(effect),
        start=start,
        rule=rule,
        time_zone=zone,
        labels=dict(labels),
        reason=reason,
    )
    wanted.duration.FromTimedelta(duration)
    if application:
        wanted.application_id = (await find_application(client, application)).id
    if dry_run:
        say_dry_run(f"set the window {name!r}: {_describe_time(wanted)}")
        return
    request = pb.SetWindowRequest(window=wanted)
    made = await call(client.windows.SetWindow, request, metadata=idempotency_key())
    if wants_data(output):
        print_data(made.window, output)
    else:
        echo(
            wrap_text(f"set the window {make_printable_line(name)}: {_describe_time(made.window)}")
        )


@window.command("list")
@list_option
@use_client
async def list_windows(client: Client, *, output: str) -> None:
    """List the project's windows, and its emergency stop."""
    rules = (await call(client.windows.GetRules, pb.GetRulesRequest())).rules
    if wants_data(output):
        print_data(rules, output)
        return
    if output == "name":
        for each in rules.windows:
            echo(make_printable_line(each.name))
        return
    if rules.HasField("emergency_stop"):
        stop = rules.emergency_stop
        since = when(stop.since.seconds)
        sentence = f"emergency stop by {stop.by} since {since}: {stop.reason}"
        echo(wrap_text(make_printable_line(sentence)))
    if rules.windows:
        _print_windows(rules.windows, wide=is_wide(output))
    else:
        echo("no window; make one: pipectl window set NAME --deny …", err=True)


@window.command()
@click.argument("name")
@dry_run_option
@use_client
async def delete(client: Client, *, name: str, dry_run: bool) -> None:
    """Delete a window."""
    if dry_run:
        say_dry_run(f"delete the window {name!r}")
        return
    request = pb.DeleteWindowRequest(name=name)
    await call(client.windows.DeleteWindow, request, metadata=idempotency_key())
    echo(f"deleted the window {make_printable_line(name)}")


@window.command()
@application_option
@label_option
@click.option("--days", type=click.IntRange(1, 92), default=7, show_default=True)
@output_option
@use_client
async def preview(
    client: Client,
    *,
    application: str,
    labels: tuple[tuple[str, str], ...],
    days: int,
    output: str,
) -> None:
    """Show when deployments may begin in the next days."""
    request = pb.PreviewWindowsRequest(labels=dict(labels))
    if application:
        request.application_id = (await find_application(client, application)).id
    request.start.GetCurrentTime()
    request.start.nanos = 0
    request.end.CopyFrom(Timestamp(seconds=request.start.seconds + days * 86400))
    answer = await call(client.windows.PreviewWindows, request)
    if wants_data(output):
        print_data(answer, output)
        return
    columns: list[Column[pb.Span]] = [
        Column(heading="FROM", cell=lambda it: when(it.start.seconds), fixed=True),
        Column(heading="TO", cell=lambda it: when(it.end.seconds), fixed=True),
        Column(heading="DEPLOYMENTS", cell=lambda it: "wait" if it.reason else "begin", fixed=True),
        Column(heading="WHY", cell=lambda it: it.reason),
    ]
    print_table(columns, answer.spans, wide=False)


@window.command()
@reason_option
@dry_run_option
@use_client
async def stop(client: Client, *, reason: str, dry_run: bool) -> None:
    """Emergency stop: begin nothing, and pause what runs before its next stage.

    Rollbacks are not stopped.
    """
    if dry_run:
        say_dry_run("stop all deployments of the project")
        return
    request = pb.StopDeploymentsRequest(reason=reason)
    await call(client.windows.StopDeployments, request, metadata=idempotency_key())
    echo("no deployment begins, and running ones pause; go on with: pipectl window resume")


@window.command()
@dry_run_option
@use_client
async def resume(client: Client, *, dry_run: bool) -> None:
    """End the emergency stop."""
    if dry_run:
        say_dry_run("end the emergency stop")
        return
    request = pb.ResumeDeploymentsRequest()
    await call(client.windows.ResumeDeployments, request, metadata=idempotency_key())
    echo("deployments go on")


@window.command()
@click.argument("deployment")
@reason_option
@dry_run_option
@use_client
async def override(client: Client, *, deployment: str, reason: str, dry_run: bool) -> None:
    """Let one deployment begin now, whatever windows, freeze and emergency stop say."""
    found = await find_deployment(client, deployment)
    if dry_run:
        say_dry_run(f"let the deployment {found.id} begin")
        return
    request = pb.OverrideRulesRequest(deployment_id=found.id, reason=reason)
    await call(client.windows.OverrideRules, request, metadata=idempotency_key())
    echo(f"the deployment {found.id} may begin")


def _print_windows(windows: Sequence[Window], *, wide: bool) -> None:
    columns: list[Column[Window]] = [
        Column(heading="NAME", cell=lambda it: it.name),
        Column(heading="EFFECT", cell=lambda it: EFFECTS.get(it.effect, "?"), fixed=True),
        Column(heading="WHEN", cell=_describe_time),
        Column(heading="FOR", cell=_describe_scope),
        Column(heading="REASON", cell=lambda it: it.reason, wide=True),
        Column(heading="SET BY", cell=lambda it: it.created_by, wide=True),
    ]
    print_table(columns, windows, wide=wide)


def _describe_time(window: Window) -> str:
    how_long = format_duration(window.duration.ToTimedelta().total_seconds())
    rule = f", {window.rule}" if window.rule else ", once"
    return f"{window.start} {window.time_zone} for {how_long}{rule}"


def _describe_scope(window: Window) -> str:
    if window.application_id:
        return f"application {window.application_id}"
    named = ", ".join(f"{key}:{value}" for key, value in sorted(window.labels.items()))
    return named or "the project"
