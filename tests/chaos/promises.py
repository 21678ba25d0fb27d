# SPDX-License-Identifier: Apache-2.0
"""What the kit checks, each promise with its name, and which of them do not hold yet and why.

A promise that is not kept yet is still checked, and its violations are counted and shown apart; the
run fails for those that are kept. This is the only place where that is decided.
"""

from dataclasses import dataclass

PROMISES = {
    "once": "a script runs at most once, and exactly once when its stage has an outcome",
    "outcome": "statuses agree with what the scripts have done and with what has died",
    "rollback": "exactly the scripts that had started are rolled back, once, in pipeline order",
    "triggered": "each commit makes one deployment per application",
    "forward": "no status ever goes backwards or changes after its end",
    "logs": "each line of a script is in the stage log once, in order, and the log is closed",
    "processes": "no process is left over",
    "records": "no script record is left over once its deployment has ended",
    "bounded": "every deployment ends within its time",
    "alive": "no program ends by itself",
}

NOT_YET: dict[str, str] = {
    "records": "nothing removes the records of a script when its deployment has ended",
}
"""Promises that are not kept yet, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A promise that was broken."""

    promise: str
    sentence: str

    @property
    def counts(self) -> bool:
        """Does the run fail for it?"""
        return self.promise not in NOT_YET

    def __str__(self) -> str:
        return f"{self.promise}: {self.sentence}"
