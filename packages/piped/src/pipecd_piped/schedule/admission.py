# SPDX-License-Identifier: Apache-2.0
"""Gives out what is limited: places to run in, and locks by name, all that one wants at once.

Nobody waits while holding a part of what they want, so there is no deadlock. Who waits longest is
served first; what they lack is kept for them, so that nobody with several locks starves.
"""

import bisect
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from pipecd_model.gate import Blocker
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment


class Precedence(IntEnum):
    """Who goes first. Only an ordinary one waits for a place."""

    BEGUN = 0
    """It was running already, before a restart."""
    ROLL_BACK = 1
    """A person brings an application back."""
    ORDINARY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What a deployment wants to have before it begins."""

    deployment_id: str
    application_name: str
    since: int
    """The place in the line, see `Admission.next_number`."""
    precedence: Precedence = Precedence.ORDINARY
    locks: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Ticket:
    """A want that was asked for: it waits, then holds, until it is given back."""

    want: Want
    on_granted: Callable[[], None]
    is_granted: bool = False
    blocker: Blocker | None = field(default=None)
    """What it waits for; None once it is granted."""

    @property
    def key(self) -> tuple[int, int]:
        return self.want.precedence, self.want.since


class Admission:
    """A number of places, and any number of locks that exist as soon as somebody names them."""

    def __init__(self, most: int, noun: str = "deployments") -> None:
        """`most`: the number of places, 0 for no limit. `noun`: what they are for, in sentences."""
        self._most = most
        self._noun = noun
        self._used = 0
        self._held: dict[str, Want] = {}
        self._owed: dict[str, dict[str, str]] = {}
        """By lock: the names of applications, by deployments that held it before a restart."""
        self._line: list[Ticket] = []
        self._numbers = itertools.count()

    def next_number(self) -> int:
        """Returns a place at the end of the line."""
        return next(self._numbers)

    def owe(self, deployment_id: str, application_name: str, locks: Iterable[str]) -> None:
        """Keep locks for a deployment that has begun before this process, until it asks."""
        for name in locks:
            self._owed.setdefault(name, {})[deployment_id] = application_name

    def forgive(self, deployment_id: str) -> None:
        """Keep nothing any more for a deployment that is completed or somebody else's."""
        for name in [name for name, owed in self._owed.items() if deployment_id in owed]:
            del self._owed[name][deployment_id]
            if not self._owed[name]:
                del self._owed[name]
        self._grant()

    def ask(self, want: Want, on_granted: Callable[[], None] = lambda: None) -> Ticket:
        """Ask for everything that is wanted; granted at once if it is free, else later."""
        ticket = Ticket(want, on_granted)
        bisect.insort(self._line, ticket, key=lambda each: each.key)
        self._grant(but=ticket)
        return ticket

    def give_back(self, ticket: Ticket) -> None:
        """Give back what a ticket holds, or stop waiting for it."""
        if not ticket.is_granted:
            if ticket in self._line:
                self._line.remove(ticket)
        else:
            ticket.is_granted = False
            self._used -= 1
            for name in ticket.want.locks:
                del self._held[name]
        self._grant()

    def _grant(self, but: Ticket | None = None) -> None:
        """Grant what can be granted, in the order of the line; `but` is told by its caller."""
        kept: dict[str, Want] = {}
        left: list[Ticket] = []
        for place, ticket in enumerate(self._line):
            ticket.blocker = self._find_blocker(ticket.want, kept, len(left))
            if ticket.blocker is None:
                self._take(ticket)
                if ticket is not but:
                    ticket.on_granted()
                continue
            left.append(ticket)
            if ticket.blocker.cause == QueuedDeployment.SLOT:
                left += self._line[place + 1 :]  # all of them wait for a place
                break
            for name in ticket.want.locks:
                kept.setdefault(name, ticket.want)
        self._line = left

    def _take(self, ticket: Ticket) -> None:
        want = ticket.want
        ticket.is_granted = True
        self._used += 1
        for name in want.locks:
            self._held[name] = want
            owed = self._owed.get(name, {})
            owed.pop(want.deployment_id, None)
            if not owed:
                self._owed.pop(name, None)

    def _find_blocker(self, want: Want, kept: dict[str, Want], ahead: int) -> Blocker | None:
        if self._lacks_place(want):
            return self._describe_place(ahead)
        for name in want.locks:
            held = self._held.get(name)
            if held is not None:
                return _describe_lock(name, held.deployment_id, held.application_name, "holds", 0)
            owed = self._owed.get(name, {})
            if owed and want.deployment_id not in owed:
                other, application = next(iter(owed.items()))
                return _describe_lock(name, other, application, "holds", 0)
            if name in kept:
                first = kept[name]
                return _describe_lock(
                    name, first.deployment_id, first.application_name, "waits longer for", ahead
                )
        return None

    def _describe_place(self, ahead: int) -> Blocker:
        return Blocker(
            cause=QueuedDeployment.SLOT,
            sentence=f"its piped runs {self._used} {self._noun}, and at most {self._most} at once",
            hint=f"it goes on when one of them is completed; limits.{self._noun} of the piped file"
            " allows more",
            position=ahead,
        )

    def describe(self, ticket: Ticket) -> Blocker | None:
        """Returns what a ticket waits for now; None when it is granted."""
        if ticket.is_granted:
            return None
        if ticket.blocker is None or self._lacks_place(ticket.want):
            return self._describe_place(self._line.index(ticket))
        return ticket.blocker

    def _lacks_place(self, want: Want) -> bool:
        is_full = self._most > 0 and self._used >= self._most
        return is_full and want.precedence is Precedence.ORDINARY


def _describe_lock(
    name: str, deployment_id: str, application_name: str, verb: str, position: int
) -> Blocker:
    return Blocker(
        cause=QueuedDeployment.LOCK,
        sentence=f"the deployment {deployment_id} of {application_name} {verb} the lock {name!r}",
        hint="it begins when that one is completed; cancel that one if it is not wanted",
        other_deployment_id=deployment_id,
        lock=name,
        position=position,
    )
