# SPDX-License-Identifier: Apache-2.0
"""What the kit checks, each promise with its name."""

from dataclasses import dataclass

PROMISES = {
    "once": "a script runs at most once, and exactly once when its stage has an outcome",
    "beside": "a plugin of another maker runs no script beside one that is to be over",
    "outcome": "statuses agree with what the scripts have done and with what has died",
    "rollback": "exactly the scripts that had started are rolled back, once, in pipeline order",
    "triggered": "each commit makes one deployment per application",
    "forward": "no status ever goes backwards or changes after its end",
    "logs": "each line of a script is in the stage log once, in order, and the log is closed",
    "processes": "no process is left over",
    "records": "no script record is left over once its deployment has ended",
    "folders": "no tree is left over",
    "bounded": "every deployment ends within its time",
    "alone": "one deployment of an application, and one holder of a lock, at a time",
    "chain": "a block begins when all before it have succeeded; one that has not ends the chain",
    "queue": "no commit is lost or deployed twice; only what may be superseded is, with a sentence",
    "hold": "a commit that failed is deployed again once a person says so, and then once",
    "pin": "a roll-back happens once, and nothing newer is deployed before it is released",
    "retry": "each attempt of a stage runs once, and a retry makes one",
    "rule": "nothing begins while a freeze, a window or an emergency stop is in force",
    "why": "what waits says why",
    "asked": "what a person asks for is done, or refused for a reason",
    "audit": "who did what is one whole chain, with every change that was answered",
    "alive": "no program ends by itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A promise that was broken."""

    promise: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.sentence}"
