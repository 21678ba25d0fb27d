# SPDX-License-Identifier: Apache-2.0
"""`pipectl audit …`: who did what in the project, and whether the chain of records is whole."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import click
from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_model.audit import (
    ChainVerifier,
    format_head,
    from_line,
    head_of,
    parse_head,
    to_line,
    to_value,
)
from pipecd_model.errors import ConfigError, StateError
from pipecd_pipectl.client import (
    Client,
    add_connection_options,
    open_client,
    take_connection,
    use_client,
)
from pipecd_pipectl.moments import MOMENT
from pipecd_pipectl.output import (
    echo,
    is_wide,
    list_option,
    print_data,
    print_json_line,
    wants_data,
    when,
)
from pipecd_pipectl.paging import say_more
from pipecd_pipectl.tables import Column, print_table
from pipecd_pipectl.times import format_age
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import call

F = TypeVar("F", bound=Callable[..., Any])

PAGE: Final = 500
LONGEST_LINE: Final = 1 << 20
"""Bytes of a line of an export: far more than a record has."""


@click.group()
def audit() -> None:
    """Audit: list who did what, export it, verify that it is whole.

    For whoever may change the project.
    """


def _add_filters(command: F) -> F:
    for option in (
        click.option("--subject", default="", help="Only what was done to this, by name or id."),
        click.option("--action", default="", help="Only this action, such as ApproveStage."),
        click.option("--actor", default="", help="Only what this person, key or piped did."),
        click.option("--until", type=MOMENT, default=0, help="Only what is older than this."),
        click.option("--since", type=MOMENT, default=0, help="24h for a day, or 2026-11-16."),
    ):
        command = option(command)
    return command


def _make_request(
    *, since: int, until: int, actor: str, action: str, subject: str, oldest_first: bool = False
) -> pb.ListAuditRequest:
    request = pb.ListAuditRequest(
        actor=actor, action=action, subject=subject, oldest_first=oldest_first
    )
    if since:
        request.since.CopyFrom(Timestamp(seconds=since))
    if until:
        request.before.CopyFrom(Timestamp(seconds=until))
    return request


async def _read_pages(
    client: Client, request: pb.ListAuditRequest, limit: int = 0
) -> AsyncIterator[pb.ListAuditResponse]:
    """Yields pages until the list ends, or has `limit` records; 0 is all of it."""
    left = limit
    while True:
        request.page_size = min(left, PAGE) if limit else PAGE
        page = await call(client.projects.ListAudit, request)
        yield page
        left -= len(page.records)
        # A server that returns the same cursor again would be asked for ever.
        if not page.cursor or page.cursor == request.cursor or (limit and left <= 0):
            return
        request.cursor = page.cursor


@audit.command("list")
@_add_filters
@click.option("--limit", type=click.IntRange(0), default=50, show_default=True, help="0: all.")
@click.option("--cursor", default="", help="Go on where a list ended.")
@list_option
@use_client
async def list_records(
    client: Client,
    *,
    since: int,
    until: int,
    actor: str,
    action: str,
    subject: str,
    limit: int,
    cursor: str,
    output: str,
) -> None:
    """List who did what, the newest first.

    \b
    Examples:
      pipectl audit list --since 24h
      pipectl audit list --actor alice --action ApproveStage
      pipectl audit list --subject hello -o wide
    """
    request = _make_request(since=since, until=until, actor=actor, action=action, subject=subject)
    request.cursor = cursor
    records: list[pb.AuditRecord] = []
    following = ""
    async for page in _read_pages(client, request, limit):
        records.extend(page.records)
        following = page.cursor
    if wants_data(output):
        print_data({"records": [to_value(each) for each in records], "cursor": following}, output)
    elif output == "name":
        for each in records:
            echo(str(each.sequence))
    elif records:
        _print_records(records, wide=is_wide(output))
        say_more(len(records), "records", following)
    else:
        echo("no record", err=True)


def _print_records(records: Sequence[pb.AuditRecord], *, wide: bool) -> None:
    columns: list[Column[pb.AuditRecord]] = [
        Column(heading="NO", cell=lambda it: str(it.sequence), fixed=True),
        Column(
            heading="WHEN",
            cell=lambda it: when(it.at.seconds) if wide else format_age(it.at.seconds),
            fixed=True,
        ),
        Column(heading="WHO", cell=_describe_actor),
        Column(heading="WHAT", cell=lambda it: it.action),
        Column(heading="ON", cell=_describe_subject),
        Column(
            heading="OUTCOME",
            cell=_describe_outcome,
            colour=lambda it: None if it.outcome in {"OK", "UNCHANGED"} else "red",
        ),
        Column(heading="REASON", cell=lambda it: it.reason, wide=True),
        Column(heading="BEFORE", cell=lambda it: it.before, wide=True),
        Column(heading="AFTER", cell=lambda it: it.after, wide=True),
        Column(heading="ADDRESS", cell=lambda it: it.address, wide=True),
        Column(heading="SUBJECT ID", cell=lambda it: it.subject, wide=True),
        Column(heading="REQUEST", cell=lambda it: it.request_id, wide=True),
    ]
    print_table(columns, records, wide=wide)


KINDS: Final = {
    pb.AuditRecord.API_KEY: "key ",
    pb.AuditRecord.PIPED: "piped ",
    pb.AuditRecord.OPERATOR: "operator ",
}


def _describe_actor(record: pb.AuditRecord) -> str:
    return f"{KINDS.get(record.actor_kind, '')}{record.actor or 'somebody'}"


def _describe_subject(record: pb.AuditRecord) -> str:
    name = record.subject_name or record.subject
    return f"{record.subject_kind} {name}".strip()


def _describe_outcome(record: pb.AuditRecord) -> str:
    return f"{record.outcome} ×{record.count}" if record.count > 1 else record.outcome  # noqa: RUF001 - times


@audit.command()
@_add_filters
@use_client
async def export(
    client: Client, *, since: int, until: int, actor: str, action: str, subject: str
) -> None:
    """Write the records as lines of JSON, the oldest first, as they come.

    A whole export is verified without a server: pipectl audit verify --file FILE

    \b
    Examples:
      pipectl audit export > audit.jsonl
      pipectl audit export --since 24h | jq -c 'select(.action == "SyncApplication")'
    """
    request = _make_request(
        since=since,
        until=until,
        actor=actor,
        action=action,
        subject=subject,
        oldest_first=True,
    )
    async for page in _read_pages(client, request):
        for record in page.records:
            print_json_line(to_line(record))


@audit.command()
@click.option(
    "--head",
    "heads",
    multiple=True,
    metavar="NUMBER:HASH",
    help="What the server's log said (audit.head): the record must be there, with this hash.",
)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Verify an export rather than the server's records; - is standard input.",
)
@add_connection_options
def verify(*, heads: tuple[str, ...], file: Path | None, **flags: Any) -> None:
    """Verify the chain of records, and name the first one that does not fit.

    Each record holds the hash of the one before it: one that was changed, removed, moved or put in
    breaks the chain. That the newest ones were cut off shows only by a head from somewhere else,
    such as the server's log.

    \b
    Examples:
      pipectl audit verify
      pipectl audit verify --head "$HEAD"
      pipectl audit verify --file audit.jsonl
    """
    verifier = ChainVerifier([parse_head(each) for each in heads])
    if file is None:
        asyncio.run(_verify_server(verifier, flags))
        source = "the server"
    else:
        _verify_file(verifier, file)
        source = "the file"
    _tell(verifier, source)


async def _verify_server(verifier: ChainVerifier, flags: dict[str, Any]) -> None:
    async with open_client(take_connection(flags)) as client:
        head = None
        async for page in _read_pages(client, pb.ListAuditRequest(oldest_first=True)):
            for record in page.records:
                verifier.add(record)
            head = page.head
    verifier.finish(head)


def _verify_file(verifier: ChainVerifier, file: Path) -> None:
    with click.open_file(str(file), "rb") as opened:
        for number, line in enumerate(_read_lines(opened), 1):
            try:
                verifier.add(from_line(line))
            except ConfigError as error:
                raise ConfigError(f"{file}: line {number}: {error}", hint=error.hint) from None
    verifier.finish()


def _read_lines(opened: IO[bytes]) -> Iterator[str]:
    while line := opened.readline(LONGEST_LINE):
        if line.strip():
            yield line.decode(errors="replace")


def _tell(verifier: ChainVerifier, source: str) -> None:
    """Says that the chain is whole. Raises StateError when it is not."""
    broken = verifier.broken
    if broken is not None:
        named = f"record {broken.sequence}" + (f" ({broken.record_id})" if broken.record_id else "")
        raise StateError(
            f"the audit of {source} is broken at {named}: {broken.reason}",
            hint="compare with an export or a backup from before; what precedes it is whole",
        )
    if verifier.last is None:
        echo(f"{source} has no audit record")
        return
    last = verifier.last
    first = last.sequence - verifier.count + 1
    what = "is" if verifier.count == 1 else "are"
    echo(
        f"the audit of the project {last.project_id} is whole: the records {first} to"
        f" {last.sequence} {what} as they were written"
    )
    if first > 1:
        echo(f"older ones were cut by retention, as a record tells: 1 to {first - 1}")
    for head in verifier.known_heads:
        if head.sequence < first - 1:
            echo(f"not compared: {format_head(head)} is of a record that was cut", err=True)
    echo(f"it ends with {format_head(head_of(last))}")
