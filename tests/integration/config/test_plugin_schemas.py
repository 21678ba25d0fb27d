# SPDX-License-Identifier: Apache-2.0
"""The schemas that plugins ship are those of what they read."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_shipped_schemas_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "gen_schemas.py", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
