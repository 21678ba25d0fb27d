# SPDX-License-Identifier: Apache-2.0
"""Whatever people do and whatever dies meanwhile: nothing is lost, nothing done twice."""

from collections.abc import Iterator

import pytest
from hypothesis.stateful import run_state_machine_as_test

from sequences.machine import Sequences
from sequences.reference import Kind
from sequences.run import make_settings
from sequences.world import Worlds

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("sequences")]


@pytest.fixture
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    made = Worlds(tmp_path_factory.mktemp("sequences"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def drawn(worlds: Worlds) -> type[Sequences]:
    class Drawn(Sequences):
        pass

    Drawn.worlds = worlds
    return Drawn


def test_no_sequence_loses_a_deployment_or_deploys_in_spite_of_a_rule(
    drawn: type[Sequences],
) -> None:
    """The same few sequences every time; `make sequences` draws more."""
    run_state_machine_as_test(drawn, settings=make_settings(examples=5, steps=12, derandomize=True))


def test_a_person_who_insists_does_not_get_past_a_pin(drawn: type[Sequences]) -> None:
    """Seldom drawn: a roll-back that waits for a lock is cancelled, its hold released."""
    machine = drawn()
    machine.register()
    machine.commit_and_settle([("plain", Kind.GOOD), ("newest", Kind.GATED)])
    machine.roll_back("plain", 0, cancels=True)
    machine.insist("plain")

    machine.let_go(machine.names["newest"], 1)
    machine.settle()

    assert len(machine.known.overridden) == 1
    machine.teardown()
