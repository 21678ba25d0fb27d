# SPDX-License-Identifier: Apache-2.0
"""The unit tests of what the console computes: colours, times, the picture of a pipeline."""

import shutil
import subprocess

import pytest

from pipecd_test_support.console_site import ROOT, CannotBrowseError, build_console

LIMIT_SECONDS = 240


def test_units_of_the_console() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed; the console is built with the one of a wheel")
    try:
        build_console()
    except CannotBrowseError as error:
        pytest.skip(str(error))
    console = ROOT / "console"
    done = subprocess.run(
        [node, console / "node_modules" / "vitest" / "vitest.mjs", "run"],
        cwd=console,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
