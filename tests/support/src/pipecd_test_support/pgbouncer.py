# SPDX-License-Identifier: Apache-2.0
"""A real PgBouncer for tests: from the PATH, or Debian's package unpacked into the user's cache.

`python -m pipecd_test_support.pgbouncer` (`make pgbouncer`) brings the package there once, where
apt can fetch it; nothing is installed. Without one the tests that need it are skipped, and say why.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pipecd_test_support.debian_packages import unpack_package
from pipecd_test_support.postgres import PORT, PostgresForTests, as_nobody, find_open_folder

VARIABLE: Final = "PIPECD_PGBOUNCER"
CACHE: Final = Path.home() / ".cache" / "pipecd" / "tests" / "pgbouncer-debian"
MISSING: Final = f"there is no PgBouncer: run `make pgbouncer`, or name one in {VARIABLE}"
LIBRARIES: Final = ("libevent", "libc-ares")
LIMIT: Final = 60


def find_pgbouncer() -> Path | None:
    """Returns the program, None when there is none."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    named = os.environ.get(VARIABLE) or shutil.which("pgbouncer", path=path)
    if named:
        return Path(named)
    unpacked = CACHE / "usr" / "sbin" / "pgbouncer"
    return unpacked if unpacked.exists() else None


def fetch() -> str:
    """Unpacks Debian's package; returns what went wrong, nothing when it is there."""
    if find_pgbouncer() is not None:
        return ""
    return unpack_package("pgbouncer", CACHE, with_libraries=LIBRARIES)


class PoolerForTests:
    """A PgBouncer before a server of PostgreSQL, which may be stopped and started anew."""

    def __init__(
        self, root: Path, program: Path, server: PostgresForTests, settings: Mapping[str, str]
    ) -> None:
        self.root = root
        self._program = program
        self._server = server
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.root}"

    def start(self, pool_mode: str) -> None:
        """Start it, and wait until it listens."""
        config = self._write_config(pool_mode)
        libraries = [str(each) for each in (self.root / "usr" / "lib").glob("*-linux-gnu")]
        log = self.root / "pgbouncer.log"
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                [self._program, config],
                stdout=sink,
                stderr=sink,
                env={**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)},
                start_new_session=True,
                **as_nobody(),
            )
        limit = time.monotonic() + LIMIT
        while not self._is_listening():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.02)  # between looks at another process

    def stop(self) -> None:
        """End it at once, with all connections."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _is_listening(self) -> bool:
        with socket.socket(socket.AF_UNIX) as tried:
            return tried.connect_ex(str(self.root / f".s.PGSQL.{PORT}")) == 0

    def _write_config(self, pool_mode: str) -> Path:
        """Writes what it needs to listen on a socket alone, and to let the users of tests in."""
        users = self.root / "users.txt"
        users.write_text('"postgres" ""\n')
        lines = [
            "[databases]",
            f"* = host={self._server.root} port={PORT}",
            "[pgbouncer]",
            "listen_addr =",
            f"listen_port = {PORT}",
            f"unix_socket_dir = {self.root}",
            "auth_type = trust",
            f"auth_file = {users}",
            f"pool_mode = {pool_mode}",
            *(f"{name} = {value}" for name, value in self._settings.items()),
        ]
        config = self.root / "pgbouncer.ini"
        config.write_text("\n".join(lines) + "\n")
        return config


@contextmanager
def running_pgbouncer(
    program: Path,
    server: PostgresForTests,
    pool_mode: str,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[PoolerForTests]:
    """Runs a PgBouncer while the block runs, with its defaults but for `settings`."""
    # Short, because the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="pb-", dir=find_open_folder()) as folder:
        if program.is_relative_to(CACHE):
            # Another user runs it, who may not enter the cache.
            shutil.copytree(CACHE / "usr", Path(folder) / "usr", symlinks=True)
            program = Path(folder) / program.relative_to(CACHE)
        made = PoolerForTests(Path(folder), program, server, settings)
        made.root.chmod(0o777)
        made.start(pool_mode)
        try:
            yield made
        finally:
            made.stop()


if __name__ == "__main__":
    if problem := fetch():
        sys.stdout.write(f"{problem}: the tests on a real PgBouncer are skipped.\n")
