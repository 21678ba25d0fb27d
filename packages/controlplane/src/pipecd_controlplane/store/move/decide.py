# SPDX-License-Identifier: Apache-2.0
"""Decides from the records of both sides what a move has to do: pure, and the only place."""

from enum import Enum

from pipecd_controlplane.store.move_record import MoveRecord
from pipecd_model.errors import StateError


class MoveStep(Enum):
    """Where a move stands."""

    BEGIN = "begin"
    GO_ON = "go on"
    MARK_SOURCE = "mark the source"
    """Everything is in the target, but the source does not say so yet."""
    NOTHING = "do nothing else"
    """All rows were moved before."""


def decide_step(
    source: MoveRecord | None, target: MoveRecord | None, *, has_rows: bool, target_name: str
) -> MoveStep:
    """Returns what is to be done; `has_rows` is whether the target holds any.

    Raises StateError when the source has nothing to give, or the target is not this move's.
    """
    if source is not None and source.is_open_target:
        raise StateError(
            f"the source has not got everything yet: the move from {source.other_side} is not"
            " complete",
            hint="complete that one first",
        )
    is_same_move = (
        source is not None
        and target is not None
        and (source.role, target.role) == ("source", "target")
        and source.move_id == target.move_id
    )
    if is_same_move and source is not None and target is not None:
        if target.state == "begun":
            return MoveStep.GO_ON
        return MoveStep.NOTHING if source.state == "complete" else MoveStep.MARK_SOURCE
    if source is not None and source.role == "source" and source.state == "complete":
        raise StateError(
            f"everything was moved to {source.other_side} already",
            hint="to use the source again, as it was then, run `pipecd move --undo`",
        )
    if target is not None and target.is_open_target:
        raise StateError(
            f"{target_name} is the target of another move, from {target.other_side}, that is not"
            " complete",
            hint="complete that one, or give it up with --start-over",
        )
    if has_rows:
        raise StateError(
            f"{target_name} is not empty", hint="a target must be empty: name another one"
        )
    return MoveStep.BEGIN
