# SPDX-License-Identifier: Apache-2.0
"""The chain of a project's audit records: how a record is sealed, and how the chain is verified.

Each record holds the hash of the one before it, and its own hash is made from a canonical encoding
of everything else in it. Whoever changes, removes, moves or inserts a record would have to make all
later ones anew, and then the heads that the server has logged do not fit any more.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_model.errors import ConfigError, StateError
from pipecd_wire.pipecd.api.api_pb2 import AuditHead, AuditRecord

FORMAT: Final = 1
"""Of the encoding. A record of a newer one cannot be verified here, and is no broken one."""

CUT: Final = "CutAudit"
"""The action of the record that tells which records retention has removed before it."""

_OBJECTS: Final = frozenset({"before", "after"})
_HEAD: Final = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")


def encode(record: AuditRecord) -> bytes:
    """Returns the canonical encoding of a record, without its hash: what the hash is made from.

    It is JSON with sorted keys and without spaces; fields that are not set are left out, so that
    a field that is added later does not change the hash of older records.
    """
    fields = {each.name: _to_json(each, value) for each, value in record.ListFields()}
    fields.pop("hash", None)
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def _to_json(described: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Timestamp):
        return [value.seconds, value.nanos]
    if described.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return int(value)
    return value


def hash_record(record: AuditRecord) -> str:
    """Returns the hash that a record must have."""
    return hashlib.sha256(encode(record)).hexdigest()


def seal(record: AuditRecord, head: AuditHead) -> AuditRecord:
    """Returns the record as the next one of the chain that ends with `head`."""
    sealed = AuditRecord()
    sealed.CopyFrom(record)
    sealed.sequence = head.sequence + 1
    sealed.previous_hash = head.hash
    sealed.format = FORMAT
    sealed.hash = hash_record(sealed)
    return sealed


def head_of(record: AuditRecord) -> AuditHead:
    return AuditHead(sequence=record.sequence, hash=record.hash)


def format_head(head: AuditHead) -> str:
    """Returns a head as it is logged: `SEQUENCE:HASH`."""
    return f"{head.sequence}:{head.hash}"


def parse_head(text: str) -> AuditHead:
    """Returns the head that `format_head` wrote. Raises ConfigError for anything else."""
    found = _HEAD.fullmatch(text.strip())
    if found is None:
        raise ConfigError(
            f"{text[:80]!r} is not the head of a chain",
            hint="SEQUENCE:HASH, as in the lines audit.head of the server's log",
        )
    return AuditHead(sequence=int(found[1]), hash=found[2])


def describe_cut(head: AuditHead) -> str:
    """Returns what the record of a cut has as `after`: up to where records were removed."""
    return dump_fields({"hash": head.hash, "through": head.sequence})


def _read_cut(record: AuditRecord) -> AuditHead | None:
    if record.action != CUT or record.actor_kind != AuditRecord.SYSTEM:
        return None
    try:
        told = json.loads(record.after)
        return AuditHead(sequence=told["through"], hash=told["hash"])
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenChain:
    """The first place where a chain does not hold."""

    sequence: int
    """Of the record that does not fit; of the one that is missing when records are cut off."""
    record_id: str
    reason: str


@dataclass(slots=True)
class ChainVerifier:
    """Verifies a chain, record by record from the oldest on, against heads known from elsewhere.

    `broken` is set at the first record that does not fit; what follows is not looked at.
    """

    known_heads: list[AuditHead] = field(default_factory=list)
    count: int = 0
    last: AuditRecord | None = None
    broken: BrokenChain | None = None
    _start: AuditHead = field(default_factory=AuditHead)
    """The end of what was removed before the first record."""
    _start_record: AuditRecord | None = None
    _cut: AuditHead | None = None

    def add(self, record: AuditRecord) -> None:
        """Looks at the next record. Raises StateError for one of a newer format."""
        if self.broken is not None:
            return
        if record.format > FORMAT:
            raise StateError(
                f"record {record.sequence} is of a newer version (format {record.format})",
                hint="use a pipectl of the server's version",
            )
        reason = self._find_fault(record)
        if reason:
            self._break(record.sequence, record.id, reason)
            return
        self._cut = _read_cut(record) or self._cut
        self.last = record
        self.count += 1

    def finish(self, head: AuditHead | None = None) -> None:
        """Looks at what only the whole chain shows; `head` is where it must end, at least."""
        if self.broken is None:
            self._check_start()
        if self.broken is None and head is not None and head.sequence:
            self._check_end(head, "the server says that the chain ends with")
        for known in self.known_heads:
            if self.broken is None:
                self._check_end(known, "the head that was given is")

    def _find_fault(self, record: AuditRecord) -> str:
        """Returns why a record does not fit; empty when it does."""
        if record.hash != hash_record(record):
            return "it was changed: its hash does not fit its content"
        if self.last is None:
            self._start = AuditHead(sequence=record.sequence - 1, hash=record.previous_hash)
            self._start_record = record
            if record.sequence < 1 or (record.sequence == 1 and record.previous_hash):
                return "it does not begin a chain"
            return self._find_other_head(record)
        if record.project_id != self.last.project_id:
            return f"it is of another project, {record.project_id!r}"
        wanted = self.last.sequence + 1
        if record.sequence > wanted:
            return f"the records {wanted} to {record.sequence - 1} before it are missing"
        if record.sequence < wanted:
            return f"it is out of its place: record {wanted} must stand here"
        if record.previous_hash != self.last.hash:
            return "it does not follow the record before it: one of them was replaced"
        return self._find_other_head(record)

    def _find_other_head(self, record: AuditRecord) -> str:
        for known in self.known_heads:
            if known.sequence == record.sequence and known.hash != record.hash:
                return f"it is not the one of the head that was given: the hash was {known.hash}"
        return ""

    def _check_start(self) -> None:
        """A chain that does not begin with 1 needs the record of the cut."""
        if self._start_record is None or not self._start.sequence:
            return
        if self._cut != self._start:
            self._break(
                self._start_record.sequence,
                self._start_record.id,
                f"the records before it are missing, 1 to {self._start.sequence},"
                " and no record tells that they were cut",
            )

    def _check_end(self, known: AuditHead, said: str) -> None:
        ends = self.last.sequence if self.last is not None else 0
        if known.sequence > ends:
            what = f"the chain ends with record {ends}, but {said} {format_head(known)}"
            self._break(ends + 1, "", f"the records from here on were cut off: {what}")
        elif self.last is not None and known.sequence == ends and known.hash != self.last.hash:
            self._break(ends, self.last.id, f"{said} {format_head(known)}, its hash is another")
        elif known.sequence == self._start.sequence and known.hash != self._start.hash:
            self._break(known.sequence, "", f"{said} {format_head(known)}, which was not its hash")

    def _break(self, sequence: int, record_id: str, reason: str) -> None:
        self.broken = BrokenChain(sequence=sequence, record_id=record_id, reason=reason)


def dump_fields(fields: Mapping[str, Any]) -> str:
    """Returns `before` or `after` of a record: JSON in one form, so that it is read back the same.

    Empty without fields.
    """
    if not fields:
        return ""
    return json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def to_value(record: AuditRecord) -> dict[str, Any]:
    """Returns a record as an object of JSON; `before` and `after` are objects in it."""
    value: dict[str, Any] = {}
    for each, content in record.ListFields():
        if isinstance(content, Timestamp):
            value[each.name] = content.ToJsonString()
        elif each.enum_type is not None:
            named = each.enum_type.values_by_number.get(content)
            value[each.name] = named.name if named is not None else content
        elif each.name in _OBJECTS:
            value[each.name] = _read_fields(content)
        else:
            value[each.name] = content
    return value


def _read_fields(text: str) -> Any:
    """Returns the object of a text of `dump_fields`; any other text as it is."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return fields if isinstance(fields, dict) and dump_fields(fields) == text else text


def to_line(record: AuditRecord) -> str:
    """Returns a record as one line of an export."""
    return json.dumps(to_value(record), ensure_ascii=False)


def from_line(line: str) -> AuditRecord:
    """Returns the record of a line of an export. Raises ConfigError for anything else."""
    try:
        value = json.loads(line)
        fields = {name: _to_field(name, each) for name, each in dict.items(value)}
        return AuditRecord(**fields)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"not a record of an audit: {str(error)[:200]}",
            hint="a line of `pipectl audit export`",
        ) from None


def _to_field(name: str, value: Any) -> Any:
    if name == "at":
        at = Timestamp()
        at.FromJsonString(value)
        return at
    if name in _OBJECTS and isinstance(value, dict):
        return dump_fields(value)
    return value
