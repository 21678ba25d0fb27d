# SPDX-License-Identifier: Apache-2.0
"""Places and locks: all at once, who waits longest first, nobody starves, nobody deadlocks."""

import random

from pipecd_piped.schedule.admission import Admission, Precedence, Ticket, Want
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment


def ask(
    admission: Admission,
    name: str,
    *locks: str,
    precedence: Precedence = Precedence.ORDINARY,
) -> Ticket:
    want = Want(
        deployment_id=name,
        application_name=f"app of {name}",
        since=admission.next_number(),
        precedence=precedence,
        locks=locks,
    )
    return admission.ask(want)


def test_whoever_waits_longest_gets_the_next_place() -> None:
    admission = Admission(1)
    first, second, third = (ask(admission, name) for name in ("a", "b", "c"))
    assert [each.is_granted for each in (first, second, third)] == [True, False, False]

    admission.give_back(first)

    assert [each.is_granted for each in (second, third)] == [True, False]


def test_what_one_waits_for_is_said_with_the_place_in_the_line() -> None:
    admission = Admission(1)
    _, second, third = (ask(admission, name) for name in ("a", "b", "c"))

    blockers = [admission.describe(each) for each in (second, third)]

    assert [each.position for each in blockers if each] == [0, 1]
    assert [each.sentence for each in blockers if each] == [
        "its piped runs 1 deployments, and at most 1 at once"
    ] * 2


def test_without_a_limit_nobody_waits_for_a_place() -> None:
    admission = Admission(0)

    assert all(ask(admission, str(number)).is_granted for number in range(1000))


def test_a_lock_is_held_by_one_at_a_time() -> None:
    admission = Admission(0)
    holder, waiting, other = (
        ask(admission, "a", "db"),
        ask(admission, "b", "db"),
        ask(admission, "c", "cache"),
    )
    assert [each.is_granted for each in (holder, waiting, other)] == [True, False, True]
    blocker = admission.describe(waiting)
    assert blocker is not None
    assert blocker.cause == QueuedDeployment.LOCK
    assert blocker.sentence == "the deployment a of app of a holds the lock 'db'"

    admission.give_back(holder)

    assert waiting.is_granted


def test_who_waits_for_a_lock_holds_no_place_and_no_other_lock() -> None:
    admission = Admission(2)
    ask(admission, "a", "db")
    waiting = ask(admission, "b", "db")

    assert not waiting.is_granted
    assert ask(admission, "c").is_granted


def test_a_free_lock_is_kept_for_the_one_who_waits_for_two() -> None:
    """Else those who want one each could take turns for ever."""
    admission = Admission(0)
    holder = ask(admission, "a", "one")
    both = ask(admission, "b", "one", "two")
    later = ask(admission, "c", "two")
    assert [both.is_granted, later.is_granted] == [False, False]
    blocker = admission.describe(later)
    assert blocker is not None
    assert blocker.other_deployment_id == "b"

    admission.give_back(holder)

    assert [both.is_granted, later.is_granted] == [True, False]


def test_one_that_stops_waiting_frees_what_was_kept_for_it() -> None:
    admission = Admission(0)
    ask(admission, "a", "one")
    both = ask(admission, "b", "one", "two")
    later = ask(admission, "c", "two")

    admission.give_back(both)

    assert later.is_granted


def test_a_roll_back_waits_for_no_place_and_goes_first_for_a_lock() -> None:
    admission = Admission(1)
    holder = ask(admission, "a", "db")
    waiting = ask(admission, "b", "db")
    back = ask(admission, "c", "db", precedence=Precedence.ROLL_BACK)
    assert ask(admission, "d", precedence=Precedence.ROLL_BACK).is_granted

    admission.give_back(holder)

    assert [waiting.is_granted, back.is_granted] == [False, True]


def test_what_was_running_before_a_restart_keeps_its_lock_until_it_asks() -> None:
    admission = Admission(1)
    admission.owe("begun", "web", ["db"])
    early = ask(admission, "early", "db")
    assert not early.is_granted

    begun = ask(admission, "begun", "db", precedence=Precedence.BEGUN)

    assert begun.is_granted
    admission.give_back(begun)
    assert early.is_granted


def test_a_lock_that_nobody_comes_for_is_free_again() -> None:
    admission = Admission(0)
    admission.owe("begun", "web", ["db"])
    waiting = ask(admission, "b", "db")

    admission.forgive("begun")

    assert waiting.is_granted


def test_everybody_gets_their_turn_whatever_they_want() -> None:
    """Random wants of up to three of five locks: no deadlock, and no lock has two holders."""
    chance = random.Random(15)  # noqa: S311 - the same wants in every run
    for most in (1, 2, 5, 0):
        admission = Admission(most)
        waiting: list[Ticket] = []
        holding: list[Ticket] = []
        for number in range(300):
            locks = chance.sample("abcde", chance.randint(0, 3))
            waiting.append(ask(admission, str(number), *sorted(locks)))
        done = 0
        while waiting or holding:
            holding += [each for each in waiting if each.is_granted]
            waiting = [each for each in waiting if not each.is_granted]
            held = [name for each in holding for name in each.want.locks]
            assert len(held) == len(set(held))
            assert holding, "somebody waits and nobody holds"
            assert not most or len(holding) <= most
            admission.give_back(holding.pop(chance.randrange(len(holding))))
            done += 1
        assert done == 300
