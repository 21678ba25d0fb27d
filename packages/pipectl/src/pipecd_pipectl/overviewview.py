# SPDX-License-Identifier: Apache-2.0
"""What there is in a project and what of it needs a look, as people read it."""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import click

from pipecd_pipectl.output import echo, wrap_text
from pipecd_pipectl.statuses import COLOURS, status_name
from pipecd_pipectl.tables import Column, print_table, shorten_ids
from pipecd_pipectl.times import format_age, when
from pipecd_pipectl.typeable import SHORT_ID
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.model.application_pb2 import (
    DEPLOYING,
    INVALID_CONFIG,
    Application,
    ApplicationSyncStatus,
)
from pipecd_wire.pipecd.api import overview_pb2 as pb

T = TypeVar("T")

STATUSES: Final = {
    pb.NEVER_DEPLOYED: "NEVER DEPLOYED",
    pb.IN_PROGRESS: "RUNNING",
    pb.WAITING: "WAITING",
    pb.SUCCEEDED: "SUCCESS",
    pb.FAILED: "FAILURE",
    pb.CANCELLED: "CANCELLED",
}


def print_found(found: Sequence[pb.FoundApplication], *, wide: bool) -> None:
    """Prints a table of applications, in the order in which they came."""
    short = {} if wide else shorten_ids(each.application.id for each in found)
    now = time.time()

    def name_status(it: pb.FoundApplication) -> str:
        return STATUSES.get(it.status, "?")

    columns: list[Column[pb.FoundApplication]] = [
        Column(heading="NAME", cell=lambda it: it.application.name),
        Column(
            heading="LAST",
            cell=name_status,
            colour=lambda it: COLOURS.get(name_status(it)),
            fixed=True,
        ),
        Column(
            heading="SYNC",
            cell=lambda it: _name_sync(it.application),
            colour=lambda it: COLOURS.get(_name_sync(it.application)),
            fixed=True,
        ),
        Column(heading="CHANGED", cell=lambda it: _format_changed(it, now), fixed=True),
        Column(heading="KIND", cell=lambda it: it.kind),
        Column(
            heading="ID",
            cell=lambda it: short.get(it.application.id, it.application.id),
            fixed=True,
        ),
        Column(heading="LABELS", cell=lambda it: _format_labels(it.application), wide=True),
        Column(heading="PIPED", cell=lambda it: it.application.piped_id, wide=True),
        Column(heading="DEPLOYMENT", cell=lambda it: it.newest_deployment.id, wide=True),
        Column(heading="UPDATED", cell=lambda it: when(it.application.updated_at), wide=True),
    ]
    print_table(columns, found, wide=wide)


def _name_sync(application: Application) -> str:
    status = application.sync_state.status
    if application.deploying and status != INVALID_CONFIG:
        status = DEPLOYING
    return ApplicationSyncStatus.Name(status).replace("_", " ")


def _format_changed(found: pb.FoundApplication, now: float) -> str:
    moment = found.newest_deployment.updated_at or found.application.updated_at
    return format_age(moment, now)


def _format_labels(application: Application) -> str:
    return ",".join(f"{key}:{value}" for key, value in sorted(application.labels.items()))


def print_overview(overview: pb.GetOverviewResponse) -> None:
    """Prints what is broken, what waits, what runs and what changed; what is empty is left out."""
    now = time.time()
    echo(_count_all(overview))
    if overview.offline_piped_names:
        names = ", ".join(overview.offline_piped_names)
        echo(click.style(make_printable_line(f"offline: {names}"), fg="red"))
    _print_part("Broken", overview.broken_count, overview.broken, lambda it: _describe(it, now))
    _print_part(
        "Waiting for you",
        overview.waiting_for_me_count,
        overview.waiting_for_me,
        lambda it: _describe_waiting(it, now),
    )
    _print_part(
        "Waiting for others",
        overview.waiting_for_others_count,
        overview.waiting_for_others,
        lambda it: _describe_waiting(it, now),
    )
    _print_part(
        "In progress",
        overview.running_count,
        overview.running,
        lambda it: _describe_running(it, now),
    )
    _print_part(
        "Changed lately",
        overview.changed_count,
        overview.changed,
        lambda it: _describe_changed(it, now),
    )


def _count_all(overview: pb.GetOverviewResponse) -> str:
    parts = [
        f"{overview.application_count} application{_s(overview.application_count)}",
        f"{overview.broken_count} broken",
        f"{overview.waiting_for_me_count} wait{_verb(overview.waiting_for_me_count)} for you",
        f"{overview.running_count} in progress",
        f"{overview.out_of_sync_count} out of sync",
        f"{overview.piped_count} piped{_s(overview.piped_count)}",
    ]
    return ", ".join(parts)


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _verb(count: int) -> str:
    return "s" if count == 1 else ""


def _print_part(
    title: str, count: int, items: Sequence[T], describe: Callable[[T], tuple[str, str]]
) -> None:
    if not count:
        return
    echo()
    echo(click.style(title, bold=True) + (f" ({count})" if count > len(items) else ""))
    for item in items:
        first, more = describe(item)
        echo(wrap_text(make_printable_line(first), first="- "))
        if more:
            echo(wrap_text(make_printable_line(more), first="    "))


def _describe(it: pb.BrokenApplication, now: float) -> tuple[str, str]:
    held = ", held" if it.is_held else ""
    more = f"pipectl deployment logs {it.deployment.id[:SHORT_ID]}" if it.deployment.id else ""
    return f"{it.application_name}{held}, {format_age(it.since, now)}: {it.sentence}", more


def _describe_waiting(it: pb.WaitingDeployment, now: float) -> tuple[str, str]:
    of = it.deployment
    action = "approve" if it.cause == pb.WaitingDeployment.APPROVAL else "retry"
    said = f"{of.application_name}, {format_age(it.since, now)}: {it.sentence}"
    return said, f"pipectl deployment {action} {of.id[:SHORT_ID]}"


def _describe_running(it: pb.DeploymentBrief, now: float) -> tuple[str, str]:
    stage = f", now {it.stage_name}" if it.stage_name else ""
    done = f"{it.stages_done} of {it.stages} stages{stage}" if it.stages else "not planned yet"
    since = format_age(it.created_at, now)
    return f"{it.application_name} {it.id[:SHORT_ID]}, since {since}: {done}", ""


def _describe_changed(it: pb.DeploymentBrief, now: float) -> tuple[str, str]:
    status = status_name(it.status)
    commit = f'{it.commit_hash[:7]} "{it.commit_message}"'
    name = f"{it.application_name} {it.id[:SHORT_ID]}"
    return f"{name} {status} {format_age(it.completed_at, now)}: {commit}", ""
