# SPDX-License-Identifier: Apache-2.0
"""pipectl audit against a real control plane, and against whoever edits its database."""

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipecd_model import audit
from pipecd_test_support.pipectl_site import PipectlSite
from pipecd_test_support.piped_site import ServerProcess
from pipecd_test_support.stored_rows import RawConnection, StoredRow, opening_rows
from pipecd_wire.pipecd.api.api_pb2 import AuditHead, AuditRecord

RECORDS = 5
"""Made by the server itself, one piped, three applications."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A project in which a few things were done."""

    site: PipectlSite

    @property
    def folder(self) -> Path:
        return self.site.server.folder / "data"

    def read_rows(self) -> list[StoredRow]:
        with opening_rows(self.folder) as rows:
            return rows.run("SELECT * FROM audit_record ORDER BY sequence")

    @contextmanager
    def tampered(self, tamper: Callable[[RawConnection], object]) -> Iterator[None]:
        """The server goes on over what somebody has done to its table; then it is as before."""
        kept = self.read_rows()
        with opening_rows(self.folder) as rows:
            tamper(rows)
        try:
            yield
        finally:
            with opening_rows(self.folder) as rows:
                rows.run("DELETE FROM audit_record")
                for row in kept:
                    marks = ", ".join("?" * len(row))
                    rows.run(f"INSERT INTO audit_record VALUES ({marks})", *row.values())  # noqa: S608 - marks

    def read_record(self, sequence: int) -> AuditRecord:
        return AuditRecord.FromString(self.read_rows()[sequence - 1]["data"])

    def verify(self, *arguments: str) -> str:
        """Returns the sentence that a chain is broken with."""
        return self.site.run("audit", "verify", *arguments, code=1).stderr


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    server = ServerProcess(tmp_path_factory.mktemp("server"))
    server.start()
    try:
        site = PipectlSite(server=server)
        asyncio.run(site.register_piped("agent"))
        for name in ("hello", "website", "evil\x1b]0;owned\x07"):
            site.add_application(name, folder="folder")
        yield World(site=site)
    finally:
        server.stop()


def store(rows: RawConnection, sequence: int, record: AuditRecord) -> None:
    statement = "UPDATE audit_record SET data = ? WHERE sequence = ?"
    rows.run(statement, record.SerializeToString(), sequence)


def test_an_untouched_chain_is_whole(world: World) -> None:
    told = world.site.run("audit", "verify").stdout

    assert f"the records 1 to {RECORDS} are as they were written" in told
    assert f"it ends with {audit.format_head(audit.head_of(world.read_record(RECORDS)))}" in told


@pytest.mark.parametrize("position", range(1, RECORDS + 1))
def test_an_edited_record_is_named(world: World, position: int) -> None:
    record = world.read_record(position)
    record.actor = "mallory"

    with world.tampered(lambda rows: store(rows, position, record)):
        told = world.verify()

    assert f"is broken at record {position} ({record.id})" in told


@pytest.mark.parametrize("position", range(1, RECORDS))
def test_an_edited_record_with_a_hash_of_its_own_is_named_by_the_next(
    world: World, position: int
) -> None:
    record = world.read_record(position)
    record.actor = "mallory"
    record.hash = audit.hash_record(record)

    with world.tampered(lambda rows: store(rows, position, record)):
        assert f"is broken at record {position + 1} (" in world.verify()


@pytest.mark.parametrize("position", range(1, RECORDS))
def test_a_deleted_record_is_missed(world: World, position: int) -> None:
    def delete(rows: RawConnection) -> None:
        rows.run("DELETE FROM audit_record WHERE sequence = ?", position)

    with world.tampered(delete):
        told = world.verify()

    assert f"is broken at record {position + 1} (" in told
    assert "missing" in told


@pytest.mark.parametrize("position", range(1, RECORDS))
def test_two_records_in_each_others_place_are_found(world: World, position: int) -> None:
    one, other = world.read_record(position), world.read_record(position + 1)

    def swap(rows: RawConnection) -> None:
        store(rows, position, other)
        store(rows, position + 1, one)

    with world.tampered(swap):
        assert re.search(rf"is broken at record ({position}|{position + 1}) \(", world.verify())


@pytest.mark.parametrize("position", range(1, RECORDS))
def test_a_record_that_was_put_in_is_found(world: World, position: int) -> None:
    """Those after it are moved up, as whoever does that would."""
    forged = audit.seal(
        AuditRecord(project_id="default", action="Forge", id="forged"),
        audit.head_of(world.read_record(position)),
    )

    def insert(rows: RawConnection) -> None:
        rows.run("UPDATE audit_record SET sequence = -sequence - 1 WHERE sequence > ?", position)
        rows.run("UPDATE audit_record SET sequence = -sequence WHERE sequence < 0")
        rows.run(
            "INSERT INTO audit_record VALUES ('default', ?, 0, '', '', '', '', '', ?)",
            forged.sequence,
            forged.SerializeToString(),
        )

    with world.tampered(insert):
        assert f"is broken at record {position + 1} (" in world.verify()


@pytest.mark.parametrize("left", range(RECORDS))
def test_a_cut_at_the_end_shows_by_the_head_of_the_log(world: World, left: int) -> None:
    head = audit.format_head(audit.head_of(world.read_record(RECORDS)))

    def cut(rows: RawConnection) -> None:
        rows.run("DELETE FROM audit_record WHERE sequence > ?", left)

    world.site.run("audit", "verify", "--head", head)
    with world.tampered(cut):
        world.site.run("audit", "verify")  # nothing in the chain itself tells
        told = world.verify("--head", head)

    assert f"is broken at record {left + 1}:" in told
    assert "cut off" in told


def test_a_whole_export_is_verified_without_a_server(world: World, tmp_path: Path) -> None:
    exported = world.site.run("audit", "export").stdout
    file = tmp_path / "audit.jsonl"
    file.write_text(exported)

    def verify(code: int) -> "subprocess.CompletedProcess[str]":
        """Without an address, a key or a context."""
        return world.site.run(
            "audit",
            "verify",
            "--file",
            str(file),
            code=code,
            PIPECTL_ADDRESS="",
            PIPECTL_API_KEY="",
            HOME=str(tmp_path),
        )

    told = verify(0).stdout
    assert f"the records 1 to {RECORDS} are as they were written" in told

    lines = exported.splitlines()
    for position, line in enumerate(lines):
        changed = line.replace('"outcome": "OK"', '"outcome": "ok"')
        file.write_text("\n".join([*lines[:position], changed, *lines[position + 1 :]]))
        shown = verify(1)
        assert f"the audit of the file is broken at record {position + 1} (" in shown.stderr

    file.write_text(lines[0] + "\nnonsense\n")
    shown = verify(2)
    assert "line 2: not a record of an audit" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_lists_are_filtered_and_data_is_as_exported(world: World) -> None:
    site = world.site
    everything = json.loads(site.run("audit", "list", "-o", "json").stdout)["records"]
    exported = [json.loads(line) for line in site.run("audit", "export").stdout.splitlines()]

    assert everything == exported[::-1]
    for filters, count in (
        (("--action", "AddApplication"), 3),
        (("--subject", "hello"), 1),
        (("--actor", "admin"), 4),
        (("--actor", "nobody"), 0),
        (("--since", "1h"), RECORDS),
        (("--until", "1h"), 0),
        (("--since", "2020-01-01", "--until", "2020-01-02T12:00"), 0),
        (("--limit", "2"), 2),
    ):
        found = json.loads(site.run("audit", "list", "-o", "json", *filters).stdout)
        assert len(found["records"]) == count, filters
        assert bool(found["cursor"]) == (filters[0] == "--limit")


def test_a_table_fits_the_terminal_and_controls_are_shown_not_done(world: World) -> None:
    for output in ("table", "wide"):
        shown = world.site.show("audit", "list", "-o", output)
        assert "\x1b]0;owned" not in shown.raw
        assert "AddApplication" in shown.text
        if output == "table":
            assert all(len(line) <= 80 for line in shown.lines)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("list", "--since", "soon"), "is no moment"),
        (("list", "--cursor", "nonsense"), "is not one of this list"),
        (("verify", "--head", "5"), "is not the head of a chain"),
        (("verify", "--file", "/nothing"), "does not exist"),
    ],
)
def test_a_wrong_call_gets_a_sentence(
    world: World, arguments: tuple[str, ...], sentence: str
) -> None:
    shown = world.site.run("audit", *arguments, code=2)

    assert sentence in shown.stderr
    assert "Traceback" not in shown.stderr


def read_logged(server: ServerProcess) -> list[AuditHead]:
    lines = (server.folder / "log").read_text().splitlines(keepends=True)
    # A line without its end is still being written.
    found = [json.loads(line) for line in lines if '"audit.head"' in line and line.endswith("\n")]
    return [audit.parse_head(each["head"]) for each in found]


def test_after_a_kill_the_chain_is_whole_and_holds_what_was_answered(tmp_path: Path) -> None:
    """What a call was answered for is in the chain; the heads of all logs fit it."""
    server = ServerProcess(tmp_path)
    server.start()
    site = PipectlSite(server=server)
    heads: list[AuditHead] = []
    names: list[str] = []
    try:
        for number in range(3):
            names.append(f"agent-{number}")
            site.run("piped", "register", names[-1])
            heads += read_logged(server)
            os.kill(server.pid, signal.SIGKILL)
            server.stop()
            server.start()
        heads += read_logged(server)

        flags = [word for head in heads for word in ("--head", audit.format_head(head))]
        site.run("audit", "verify", *flags)
        listed = json.loads(site.run("audit", "list", "-o", "json").stdout)["records"]
        assert [each.get("subject_name", "") for each in listed[::-1]] == ["", *names]
        # A timed job may log a head between the starts as well.
        assert sorted({head.sequence for head in heads}) == [1, 2, 3, 4]
    finally:
        server.stop()
