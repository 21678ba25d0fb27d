# SPDX-License-Identifier: Apache-2.0
"""The chain of audit records: whatever is done to it is found, and named at its first place."""

from collections.abc import Callable

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_model import audit
from pipecd_model.errors import ConfigError, StateError
from pipecd_wire.pipecd.api.api_pb2 import AuditHead, AuditRecord

COUNT = 5


def make_record(number: int, **fields: object) -> AuditRecord:
    given = {
        "at": Timestamp(seconds=1_800_000_000 + number),
        "actor": "ada",
        "actor_kind": AuditRecord.PERSON,
        "actor_id": "GITHUB",
        "address": "192.0.2.7",
        "action": "ApproveStage",
        "service": "pipecd.api.v1.DeploymentService",
        "subject": f"d{number}",
        "subject_kind": "deployment",
        "subject_name": "hello",
        "reason": "looks good “fine” ✔",
        "before": audit.dump_fields({"status": "RUNNING"}),
        "after": audit.dump_fields({"stage_id": "s1", "labels": {"team": "ünïcode"}}),
        "outcome": "OK",
        "id": f"record-{number}",
        "request_id": f"request-{number}",
        "project_id": "ours",
        "count": 2,
        **fields,
    }
    return AuditRecord(**given)  # type: ignore[arg-type] # of as many types as there are fields


def make_chain(count: int = COUNT, *, project_id: str = "ours") -> list[AuditRecord]:
    chain: list[AuditRecord] = []
    head = AuditHead()
    for number in range(1, count + 1):
        chain.append(audit.seal(make_record(number, project_id=project_id), head))
        head = audit.head_of(chain[-1])
    return chain


def verify(chain: list[AuditRecord], *known: AuditHead) -> audit.ChainVerifier:
    verifier = audit.ChainVerifier(list(known))
    for record in chain:
        verifier.add(record)
    verifier.finish()
    return verifier


def find_break(chain: list[AuditRecord], *known: AuditHead) -> audit.BrokenChain:
    broken = verify(chain, *known).broken
    assert broken is not None
    return broken


def test_a_chain_that_nobody_touched_is_whole() -> None:
    verifier = verify(make_chain())

    assert verifier.broken is None
    assert verifier.count == COUNT
    assert verifier.last == make_chain()[-1]


def test_the_encoding_of_a_record_never_changes() -> None:
    """Records of years ago are verified by what is computed today: else it is a new format."""
    first = audit.seal(make_record(1), AuditHead())

    assert audit.FORMAT == 1
    assert first.hash == "d8d3355b79eb553f7e459580d4a8b87a4e290d55dee8940f9816464c5824775b"


FIELDS = [field.name for field in AuditRecord.DESCRIPTOR.fields]


def change_field(record: AuditRecord, name: str) -> None:
    value = getattr(record, name)
    if isinstance(value, Timestamp):
        value.seconds += 1
    elif isinstance(value, str):
        setattr(record, name, ("0" if value[:1] != "0" else "1") + value[1:])
    else:
        setattr(record, name, value - 1 if name == "format" else value + 1)


@pytest.mark.parametrize("position", range(COUNT))
@pytest.mark.parametrize("name", FIELDS)
def test_an_edit_of_any_field_of_any_record_is_found(name: str, position: int) -> None:
    chain = make_chain()
    change_field(chain[position], name)

    broken = find_break(chain)

    assert broken.record_id == chain[position].id
    assert "it was changed" in broken.reason


@pytest.mark.parametrize("position", range(COUNT - 1))
def test_a_record_that_was_replaced_whole_breaks_the_next_one(position: int) -> None:
    """Whoever edits a record can compute its hash anew, but not what the next one says of it."""
    chain = make_chain()
    chain[position].actor = "mallory"
    chain[position].hash = audit.hash_record(chain[position])

    broken = find_break(chain)

    assert broken.sequence == position + 2
    assert "one of them was replaced" in broken.reason


def test_the_last_record_replaced_whole_is_found_by_a_head_from_the_log() -> None:
    chain = make_chain()
    head = audit.head_of(chain[-1])
    chain[-1].actor = "mallory"
    chain[-1].hash = audit.hash_record(chain[-1])

    assert verify(chain).broken is None  # nothing in the chain itself tells
    assert find_break(chain, head).sequence == COUNT


@pytest.mark.parametrize("position", range(COUNT))
def test_a_chain_made_anew_from_a_record_on_is_found_by_a_head_from_the_log(position: int) -> None:
    chain = make_chain()
    heads = [audit.head_of(each) for each in chain]
    chain[position].actor = "mallory"
    for index in range(position, COUNT):
        before = audit.head_of(chain[index - 1]) if index else AuditHead()
        chain[index] = audit.seal(chain[index], before)

    assert verify(chain).broken is None
    for index, head in enumerate(heads):
        broken = verify(chain, head).broken
        assert (broken.sequence if broken else None) == (index + 1 if index >= position else None)


@pytest.mark.parametrize("position", range(COUNT - 1))
def test_a_record_that_was_removed_is_found(position: int) -> None:
    chain = make_chain()
    del chain[position]

    broken = find_break(chain)

    assert broken.sequence == position + 2
    assert "missing" in broken.reason


@pytest.mark.parametrize("left", range(COUNT))
def test_an_end_that_was_cut_off_is_found_by_a_head_from_the_log(left: int) -> None:
    chain = make_chain()
    head = audit.head_of(chain[-1])

    broken = find_break(chain[:left], head)

    assert broken.sequence == left + 1
    assert "cut off" in broken.reason
    assert verify(chain[:left]).broken is None


def test_an_end_that_was_cut_off_is_found_when_the_server_knows_where_it_ended() -> None:
    verifier = audit.ChainVerifier()
    for record in make_chain()[:-1]:
        verifier.add(record)
    verifier.finish(audit.head_of(make_chain()[-1]))

    assert verifier.broken is not None
    assert verifier.broken.sequence == COUNT


@pytest.mark.parametrize("position", range(COUNT - 1))
def test_two_records_that_changed_places_are_found(position: int) -> None:
    chain = make_chain()
    chain[position], chain[position + 1] = chain[position + 1], chain[position]

    broken = find_break(chain)

    assert broken.sequence in {position + 1, position + 2}


@pytest.mark.parametrize("position", range(COUNT))
@pytest.mark.parametrize("numbered", ["as the next", "as the one before"])
def test_a_record_that_was_put_in_is_found(position: int, numbered: str) -> None:
    chain = make_chain()
    head = audit.head_of(chain[position])
    if numbered == "as the one before":
        head.sequence -= 1
    forged = audit.seal(make_record(99, actor="mallory"), head)
    chain.insert(position + 1, forged)

    if position == COUNT - 1 and numbered == "as the next":
        assert verify(chain).broken is None  # whoever can write may append: that is no forgery
        return
    assert find_break(chain).record_id in {
        forged.id,
        chain[position + 2].id if position < 4 else "",
    }


@pytest.mark.parametrize("position", range(1, COUNT))
def test_a_record_of_another_project_is_found(position: int) -> None:
    chain = make_chain()
    chain[position] = make_chain(project_id="theirs")[position]

    assert find_break(chain).sequence == position + 1


def cut_chain(through: int) -> list[AuditRecord]:
    """A chain whose first records retention has removed, and which tells of it."""
    chain = make_chain()
    removed = audit.head_of(chain[through - 1])
    told = make_record(
        50,
        action=audit.CUT,
        actor_kind=AuditRecord.SYSTEM,
        after=audit.describe_cut(removed),
    )
    chain.append(audit.seal(told, audit.head_of(chain[-1])))
    return chain[through:]


@pytest.mark.parametrize("through", range(1, COUNT + 1))
def test_a_chain_that_tells_of_its_cut_is_whole(through: int) -> None:
    verifier = verify(cut_chain(through))

    assert verifier.broken is None
    assert verifier.count == COUNT + 1 - through


@pytest.mark.parametrize("through", range(2, COUNT))
def test_one_record_more_or_less_than_the_cut_says_is_found(through: int) -> None:
    chain = cut_chain(through)
    longer = cut_chain(through - 1)[:1] + chain

    assert "no record tells" in find_break(chain[1:]).reason
    assert "no record tells" in find_break(longer).reason


def test_only_the_server_itself_can_tell_of_a_cut() -> None:
    """A person can be called anything, and an RPC of that name may come."""
    chain = make_chain()
    told = make_record(50, action=audit.CUT, after=audit.describe_cut(audit.head_of(chain[0])))
    chain.append(audit.seal(told, audit.head_of(chain[-1])))

    assert "no record tells" in find_break(chain[1:]).reason


def test_a_head_of_what_was_cut_is_compared_where_it_can_be() -> None:
    chain = make_chain()
    last_removed = audit.head_of(chain[2])

    assert verify(cut_chain(3), last_removed).broken is None
    last_removed.hash = "0" * 64
    assert find_break(cut_chain(3), last_removed).sequence == 3


def test_a_record_of_a_newer_format_is_not_called_broken() -> None:
    chain = make_chain()
    chain[2].format = audit.FORMAT + 1

    with pytest.raises(StateError, match="newer version"):
        verify(chain)


def test_a_line_of_an_export_is_read_back_as_it_was() -> None:
    for record in [*make_chain(), *cut_chain(3)]:
        assert audit.from_line(audit.to_line(record)) == record


def test_what_is_no_object_in_before_and_after_is_exported_as_it_is() -> None:
    """Else an edit that only changes spaces would vanish on the way."""
    for text in ("not JSON", "[]", '{"a": 1}', '{"b":1,"a":2}', '"x"', "1e400"):
        record = make_record(1, before=text, after=text)

        assert audit.from_line(audit.to_line(record)) == record


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "1",
        '"text"',
        '{"unknown": 1}',
        '{"sequence": "x"}',
        '{"sequence": 99999999999999999999}',
        '{"at": "yesterday"}',
        '{"at": 1}',
        '{"actor": 1}',
        '{"actor_kind": "NOBODY"}',
        "[" * 100_000,
        '{"before": ' * 50_000,
    ],
    ids=lambda line: line[:20],
)
def test_a_line_that_is_none_gets_a_sentence(line: str) -> None:
    with pytest.raises(ConfigError, match="not a record of an audit"):
        audit.from_line(line)


def test_a_head_is_read_as_it_is_logged() -> None:
    head = audit.head_of(make_chain()[-1])

    assert audit.parse_head(f" {audit.format_head(head)}\n") == head


@pytest.mark.parametrize(
    "text", ["", "5", "5:", "x:" + "0" * 64, "5:" + "G" * 64, "-1:" + "0" * 64]
)
def test_what_is_no_head_gets_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match="is not the head of a chain"):
        audit.parse_head(text)


def test_an_empty_chain_is_whole_and_has_no_last_record() -> None:
    verifier = verify([])

    assert verifier.broken is None
    assert verifier.last is None


def test_nothing_is_looked_at_after_the_first_break() -> None:
    chain = make_chain()
    changes: list[Callable[[AuditRecord], None]] = [
        lambda record: setattr(record, "actor", "x"),
        lambda record: setattr(record, "reason", "y"),
    ]
    for position, change in zip((1, 3), changes, strict=True):
        change(chain[position])

    assert find_break(chain).sequence == 2
