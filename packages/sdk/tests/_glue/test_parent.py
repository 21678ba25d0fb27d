# SPDX-License-Identifier: Apache-2.0
"""A plugin ends with the piped that started it, however early that dies."""

import os
import subprocess
import sys

ASK = "from pipecd_sdk._glue.parent import die_with_parent; die_with_parent(); print('lives')"


def run(parent: int | None) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if "PIPECD" not in name}
    if parent is not None:
        environment["PIPECD_PARENT_PID"] = str(parent)
    return subprocess.run(
        [sys.executable, "-c", ASK],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_plugin_lives_with_the_parent_that_started_it() -> None:
    assert run(os.getpid()).stdout == "lives\n"
    assert run(None).stdout == "lives\n"


def test_a_parent_that_died_while_python_was_starting_is_noticed() -> None:
    """By then the plugin has another parent already, and comparing with that one says nothing."""
    orphaned = run(os.getppid())

    assert orphaned.returncode != 0
    assert "OrphanedError" in orphaned.stderr
