# SPDX-License-Identifier: Apache-2.0
"""Run the few tests that failed in the last run once more, alone, and name those that pass now.

A change that breaks something breaks it again. A test that failed beside thousands of others and
passes alone is unsteady: a defect as well, which is named in the last lines and has to be mended,
but no reason to refuse the change that met it. More than a few failures are never run again.

    python tools/rerun_failed.py [option of pytest …]
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

FAILED: Final = Path(".pytest_cache", "v", "cache", "lastfailed")
"""Where pytest notes them, in the folder that it runs in."""

MOST: Final = 3
"""Tests that may fail in a run for them to be run again."""


def read_failed(file: Path = FAILED) -> list[str]:
    """Returns the tests that failed in the last run, none when it noted none."""
    try:
        noted: dict[str, bool] = json.loads(file.read_text())
    except FileNotFoundError:
        return []
    # pytest-xdist adds the group of a test to its name.
    return sorted({re.sub(r"@[^\]@:]+$", "", name) for name in noted})


def main(options: list[str]) -> int:
    failed = read_failed()
    if not failed:
        print("rerun: no test is noted as failed: the run failed for another reason")
        return 1
    if len(failed) > MOST:
        print(f"rerun: {len(failed)} tests failed; more than {MOST} are not run again")
        return 1
    print(f"rerun: {len(failed)} failed; each runs once more, alone", flush=True)
    again = [sys.executable, "-m", "pytest", *options, *failed]
    status = subprocess.run(again, check=False).returncode
    if status == 0:
        for name in failed:
            print(f"rerun: UNSTEADY, to be mended: {name}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
