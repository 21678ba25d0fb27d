# SPDX-License-Identifier: Apache-2.0
"""What `--help` of our three programs takes, and how often the time of a bare interpreter that is.

All take turns, so that a busy moment meets each of them; printed are medians. The programs are run
as people run them, by the scripts that an installation has made, with compiled modules.
"""

import compileall
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from report import Bar, info, report

TURNS = 25
BARS_MS = {"pipectl": 150.0, "piped": 150.0, "pipecd": 200.0}
SOURCES = Path(__file__).parent.parent / "packages"


def main() -> None:
    for folder in SOURCES.glob("*/src"):
        compileall.compile_dir(folder, quiet=2)
    binaries = Path(sys.executable).parent
    commands = {name: [str(binaries / name), "--help"] for name in BARS_MS}
    commands["bare"] = [sys.executable, "-c", "pass"]
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(TURNS):
        for name, command in commands.items():
            times[name].append(measure_ms(command))
    bare = statistics.median(times["bare"])
    info("help: bare interpreter", bare, "ms")
    for name, bar in BARS_MS.items():
        taken = statistics.median(times[name])
        report(f"help: {name} --help", taken, "ms", Bar("<=", bar))
        info(f"help: {name} --help / bare interpreter", taken / bare, "x")


def measure_ms(command: list[str]) -> float:
    """Run a program to its end, and return how long it took."""
    begun = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - begun) * 1000


if __name__ == "__main__":
    main()
