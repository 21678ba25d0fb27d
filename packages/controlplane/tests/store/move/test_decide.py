# SPDX-License-Identifier: Apache-2.0
"""What a move has to do follows from the records of both sides, in every combination of them."""

import pytest

from pipecd_controlplane.store.move.decide import MoveStep, decide_step
from pipecd_controlplane.store.move_record import MoveRecord, refuse_moved
from pipecd_model.errors import StateError


def make_record(text: str) -> MoveRecord | None:
    """`source begun m1`, or empty for none."""
    if not text:
        return None
    role, state, move_id = text.split()
    return MoveRecord(
        role="source" if role == "source" else "target",
        state="begun" if state == "begun" else "complete",
        move_id=move_id,
        other_side="the other",
        began_at=1_700_000_000,
    )


def decide(source: str, target: str, *, has_rows: bool = False) -> MoveStep:
    return decide_step(
        make_record(source), make_record(target), has_rows=has_rows, target_name="the target"
    )


@pytest.mark.parametrize(
    ("source", "target", "has_rows", "step"),
    [
        ("", "", False, MoveStep.BEGIN),
        # It was killed before the target had its record.
        ("source begun m1", "", False, MoveStep.BEGIN),
        # What was moved here is moved on.
        ("target complete m0", "", False, MoveStep.BEGIN),
        ("source begun m1", "target begun m1", False, MoveStep.GO_ON),
        ("source begun m1", "target begun m1", True, MoveStep.GO_ON),
        ("source begun m1", "target complete m1", True, MoveStep.MARK_SOURCE),
        ("source complete m1", "target complete m1", True, MoveStep.NOTHING),
    ],
)
def test_a_move_goes_on_where_it_stands(
    source: str, target: str, has_rows: bool, step: MoveStep
) -> None:
    assert decide(source, target, has_rows=has_rows) is step


@pytest.mark.parametrize(
    ("source", "target", "has_rows", "sentence"),
    [
        ("", "", True, "the target is not empty"),
        ("source begun m1", "", True, "the target is not empty"),
        ("target begun m0", "", False, "the source has not got everything yet"),
        ("target begun m0", "target begun m0", False, "the source has not got everything yet"),
        ("source complete m1", "", False, "everything was moved to the other already"),
        ("source complete m1", "target begun m2", True, "everything was moved to the other"),
        ("", "target begun m1", True, "is the target of another move, from the other"),
        ("source begun m2", "target begun m1", True, "is the target of another move"),
        ("", "target complete m1", True, "the target is not empty"),
        ("source begun m2", "target complete m1", True, "the target is not empty"),
        # Two databases that gave their rows away.
        ("source begun m1", "source begun m1", True, "the target is not empty"),
        ("target complete m1", "target complete m1", True, "the target is not empty"),
    ],
)
def test_a_target_that_is_not_this_moves_is_refused(
    source: str, target: str, has_rows: bool, sentence: str
) -> None:
    with pytest.raises(StateError, match=sentence):
        decide(source, target, has_rows=has_rows)


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ("target begun m1", "has not got everything yet: the move from the other that began on"),
        ("source begun m1", "the move of this database to the other that began on 2023-11-14"),
        ("source complete m1", "what was in this database is in the other since 2023-11-14 22:13"),
    ],
)
def test_a_server_is_told_why_it_may_not_use_a_database(record: str, sentence: str) -> None:
    with pytest.raises(StateError, match=sentence) as caught:
        refuse_moved(make_record(record))

    assert "pipecd" in caught.value.hint


@pytest.mark.parametrize("record", ["", "target complete m1"])
def test_a_server_uses_a_database_that_has_everything(record: str) -> None:
    refuse_moved(make_record(record))
