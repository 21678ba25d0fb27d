# SPDX-License-Identifier: Apache-2.0
"""Judges the audit from outside: the chain over the API, and the heads in the server's log."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from chaos.promises import Violation
from pipecd_model.audit import ChainVerifier, parse_head
from pipecd_wire.pipecd.api.api_pb2 import AuditHead, AuditRecord, ListAuditRequest
from pipecd_wire.rpc import Retry, call

LOGGED = '"audit.head"'
PATIENT = Retry(attempts=None, base_seconds=0.05, cap_seconds=0.5)
"""The control plane may be dead just now."""


async def read_chain(projects: Any) -> tuple[list[AuditRecord], AuditHead]:
    """Returns all records, the oldest first, and where the server says that they end."""
    records: list[AuditRecord] = []
    request = ListAuditRequest(oldest_first=True, page_size=1000)
    while True:
        page = await call(projects.ListAudit, request, retry=PATIENT)
        records += page.records
        if not page.cursor:
            return records, page.head
        request.cursor = page.cursor


def read_heads(log: Path) -> Iterator[AuditHead]:
    """Yields the heads in the log of the server, of all its lives."""
    for line in log.read_text(errors="replace").splitlines():
        if LOGGED in line:
            try:
                yield parse_head(json.loads(line)["head"])
            except ValueError:
                continue  # cut off by the death of the server


def find_violations(
    records: Sequence[AuditRecord],
    head: AuditHead,
    logged: Iterable[AuditHead],
    done: Iterable[tuple[str, str]],
) -> Iterator[Violation]:
    """Yields what is wrong with a chain; `done` is what was answered: actions and subjects."""
    verifier = ChainVerifier(list(logged))
    for record in records:
        verifier.add(record)
    verifier.finish(head)
    if (broken := verifier.broken) is not None:
        sentence = f"record {broken.sequence} {broken.record_id}: {broken.reason}"
        yield Violation(promise="audit", sentence=sentence)
    told = {(each.action, each.subject) for each in records}
    for action, subject in sorted(set(done) - told):
        yield Violation(promise="audit", sentence=f"{action} of {subject} has no record")
