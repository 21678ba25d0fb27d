# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus for tests: from the PATH, or Debian's package unpacked into the user's cache.

`python -m pipecd_test_support.prometheus` (`make prometheus`) brings the package there once, where
apt can fetch it; nothing is installed. Without one the tests that need it are skipped, and say why.
"""

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipecd_runtime.ports import pick_port
from pipecd_test_support.debian_packages import unpack_package

VARIABLE = "PIPECD_PROMETHEUS"
CACHE = Path.home() / ".cache" / "pipecd" / "tests" / "prometheus-debian"
MISSING = f"there is no Prometheus: run `make prometheus`, or name one in {VARIABLE}"
LIMIT = 60


def find_prometheus() -> Path | None:
    """Returns the program, None when there is none."""
    named = os.environ.get(VARIABLE) or shutil.which("prometheus")
    if named:
        return Path(named)
    unpacked = CACHE / "usr" / "bin" / "prometheus"
    return unpacked if unpacked.exists() else None


def fetch() -> str:
    """Unpacks Debian's package; returns what went wrong, nothing when it is there."""
    if find_prometheus() is not None:
        return ""
    return unpack_package("prometheus", CACHE)


class PrometheusProcess:
    """A Prometheus that watches addresses of this machine."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/-/ready", timeout=5):  # noqa: S310
                return True
        except OSError:
            return False


@contextmanager
def run_prometheus(program: Path, folder: Path, target: str) -> Iterator[PrometheusProcess]:
    """Runs a Prometheus that reads the metrics of a target five times a second."""
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
        f"scrape_configs: [{{job_name: shop, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    made = PrometheusProcess(pick_port())
    flags = [
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={made.address.removeprefix('http://')}",
    ]
    with (folder / "prometheus.log").open("wb") as sink:
        process = subprocess.Popen([program, *flags], stdout=sink, stderr=subprocess.STDOUT)
    try:
        limit = time.monotonic() + LIMIT
        while not made.is_ready():
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            assert time.monotonic() < limit, (folder / "prometheus.log").read_text()
            time.sleep(0.05)  # between looks at another process
        yield made
    finally:
        process.terminate()
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    if problem := fetch():
        sys.stdout.write(f"{problem}: the test on a real Prometheus is skipped.\n")
