# SPDX-License-Identifier: Apache-2.0
"""Every named place exists in the programs, and a clock that is moved is seen."""

import inspect
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from chaos.clocks import Clocks
from chaos.places import PLACES, RACE, SEAMS, Armed, orders
from chaos.seams.chaos_wrapped import WRAPPED


@pytest.mark.parametrize("place", WRAPPED)
def test_every_place_is_a_function_of_a_program(place: str) -> None:
    module, path = WRAPPED[place]
    found: object = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    assert inspect.isfunction(found)


def test_no_place_is_listed_twice() -> None:
    assert len(set(PLACES)) == len(PLACES)
    assert RACE not in PLACES


PROGRAM = """
import asyncio, sys
from pipecd_piped.report.journal import Journal
from pathlib import Path
from pipecd_wire.pipedservice.service_pb2 import ReportStatRequest
journal = Journal(Path(sys.argv[1]))
journal.open()
journal.put("lane", "ReportStat", ReportStatRequest())
print("alive")
"""


def run_armed(armed: Armed, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **armed.environment},
    )


def test_the_first_process_at_an_armed_place_dies_and_the_next_one_does_not(
    tmp_path: Path,
) -> None:
    armed = Armed(tmp_path / "armed")
    armed.arm(orders(("piped.outbox-append.after", "piped.deliver.before"), power=False))

    first = run_armed(armed, tmp_path / "outbox")
    second = run_armed(armed, tmp_path / "outbox")

    assert (first.returncode, first.stdout) == (-signal.SIGKILL, ""), first.stderr
    assert (second.returncode, second.stdout) == (0, "alive\n"), second.stderr
    assert list(armed.disarm()) == ["piped.outbox-append.after"]
    assert list(armed.disarm()) == []


def test_a_moved_clock_is_seen_by_the_program_it_was_moved_for(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path / "clocks")
    clocks.move("piped", 3600)
    script = "import time\nprint(time.time(), time.time_ns(), time.monotonic())"
    seen = {}
    for name in ("piped", "pipecd"):
        (tmp_path / name).write_text(script)
        done = subprocess.run(
            [sys.executable, str(tmp_path / name)],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **clocks.environment, "PYTHONPATH": str(SEAMS)},
        )
        seen[name] = [float(word) for word in done.stdout.split()]

    assert 3500 < seen["piped"][0] - seen["pipecd"][0] < 3700
    assert 3500 < (seen["piped"][1] - seen["pipecd"][1]) / 1e9 < 3700
    assert abs(seen["piped"][2] - seen["pipecd"][2]) < 100
