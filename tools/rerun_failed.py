# SPDX-License-Identifier: Apache-2.0
"""Run the few tests that failed in the last run once more, alone, and name those that pass now.

A change that breaks something breaks it again. A test that failed beside thousands of others and
passes alone is unsteady: a defect as well, which is named in the last lines and has to be mended,
but no reason to refuse the change that met it. More than a few failures are never run again; nor is
a run that failed for another reason: it did not come to its end, or left processes behind.

    python tools/rerun_failed.py [option of pytest …]
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, TypedDict

NOTES: Final = Path(".pytest_cache", "v")
"""Where pytest notes what it is told, in the folder that it runs in."""

TESTS_FAILED: Final = 1
"""The exit status of pytest after a whole run in which tests failed."""

MOST: Final = 3
"""Tests that may fail in a run for them to be run again."""


class RunOutcome(TypedDict):
    """How the last run ended, as the tests note it."""

    status: int
    left: list[str]
    options: list[str]
    """Those that a test needs to be run as it was."""


def read_outcome(notes: Path = NOTES) -> RunOutcome | None:
    """Returns how the last run ended, None when there was none."""
    try:
        noted: RunOutcome = json.loads((notes / "pipecd" / "outcome").read_text())
    except FileNotFoundError:
        return None
    return noted


def find_other_reason(outcome: RunOutcome) -> str:
    """Returns why a run failed beside its tests; empty when that was all."""
    if outcome["left"]:
        return "the tests have left something behind"
    if outcome["status"] != TESTS_FAILED:
        return f"it ended with status {outcome['status']}"
    return ""


def read_failed(notes: Path = NOTES) -> list[str]:
    """Returns the tests that failed in the last run, none when it noted none."""
    try:
        noted: dict[str, bool] = json.loads((notes / "cache" / "lastfailed").read_text())
    except FileNotFoundError:
        return []
    # pytest-xdist adds the group of a test to its name.
    return sorted({re.sub(r"@[^\]@:]+$", "", name) for name in noted})


def main(options: list[str]) -> int:
    outcome = read_outcome()
    reason = "there was no run" if outcome is None else find_other_reason(outcome)
    if outcome is None or reason:
        print(f"rerun: the run failed not for its tests alone: {reason}")
        return 1
    failed = read_failed()
    if not failed:
        print("rerun: no test is noted as failed: the run failed for another reason")
        return 1
    if len(failed) > MOST:
        print(f"rerun: {len(failed)} tests failed; more than {MOST} are not run again")
        return 1
    print(f"rerun: {len(failed)} failed; each runs once more, alone", flush=True)
    again = [sys.executable, "-m", "pytest", *outcome["options"], *options, *failed]
    status = subprocess.run(again, check=False).returncode
    if status == 0:
        for name in failed:
            print(f"rerun: UNSTEADY, to be mended: {name}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
