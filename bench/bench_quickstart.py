# SPDX-License-Identifier: Apache-2.0
"""How long a newcomer waits: `make quickstart` on a fresh clone, until the first stage runs.

The clone is of the commit that is checked out, pip's cache is empty, and the terminal is one of 80
columns. Also how much is installed, and how long the terminal shows nothing new.
"""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import info, report

ROOT = Path(__file__).parents[1]
FIRST_STAGE = "▶ 1"
LIMIT_SECONDS = 600


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as temporary:
        clone = Path(temporary) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        seconds, silent = measure(clone, Path(temporary) / "cache")
        report("quickstart-to-first-stage", seconds, "s", None)
        info("quickstart-longest-silence", silent, "s")
        info("quickstart-installed", size_mb(clone / ".venv"), "MB")
    return 0


def measure(clone: Path, cache: Path) -> tuple[float, float]:
    """Return the seconds until the first stage runs, and the longest time without a word."""
    ours, theirs = pty.openpty()
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    started = time.monotonic()
    process = subprocess.Popen(
        ["make", "quickstart", f"PYTHON={base_python()}"],
        cwd=clone,
        env=env | {"PIP_CACHE_DIR": str(cache), "COLUMNS": "80", "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        return wait_for_first_stage(ours, started)
    finally:
        for _ in range(2):  # the second does not wait for scripts
            os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
        os.close(ours)


def wait_for_first_stage(terminal: int, started: float) -> tuple[float, float]:
    shown = b""
    silent = 0.0
    last = started
    while time.monotonic() - started < LIMIT_SECONDS:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # the other end is closed: it has ended
            break
        now = time.monotonic()
        silent, last = max(silent, now - last), now
        if FIRST_STAGE.encode() in shown:
            return now - started, silent
    raise SystemExit(f"no stage ran; the terminal showed:\n{shown.decode(errors='replace')}")


def base_python() -> str:
    """Return the Python that environments are made from, not the one of this checkout's."""
    found = getattr(sys, "_base_executable", None) or shutil.which("python3")
    return found or sys.executable


def size_mb(folder: Path) -> float:
    sizes = (file.lstat().st_size for file in folder.rglob("*") if not file.is_symlink())
    return sum(sizes) / 1e6


if __name__ == "__main__":
    sys.exit(main())
