# SPDX-License-Identifier: Apache-2.0
"""A real PgBouncer for tests: from the PATH, or Debian's package unpacked into the user's cache.

`python -m pipecd_test_support.pgbouncer` (`make pgbouncer`) brings the package there once, where
apt can fetch it; nothing is installed. Without one the tests that need it are skipped, and say why.
"""

import os
import shutil
import signal
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
    """A PgBouncer before a server of PostgreSQL."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.root}"

    @property
    def log(self) -> str:
        return (self.root / "pgbouncer.log").read_text()

    @property
    def socket(self) -> Path:
        return self.root / f".s.PGSQL.{PORT}"


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
        made = PoolerForTests(Path(folder))
        config = _write_config(made, server, {"pool_mode": pool_mode, **settings})
        made.root.chmod(0o777)
        libraries = [str(each) for each in (CACHE / "usr" / "lib").glob("*-linux-gnu")]
        with (made.root / "pgbouncer.log").open("wb") as log:
            process = subprocess.Popen(
                [program, config],
                stdout=log,
                stderr=log,
                env={**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)},
                start_new_session=True,
                **as_nobody(),
            )
        try:
            limit = time.monotonic() + LIMIT
            while not made.socket.exists():
                assert process.poll() is None, made.log
                assert time.monotonic() < limit, made.log
                time.sleep(0.02)  # between looks at another process
            yield made
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _write_config(
    pooler: PoolerForTests, server: PostgresForTests, settings: Mapping[str, str]
) -> Path:
    """Writes what it needs to listen on a socket alone, and to let the users of tests in."""
    users = pooler.root / "users.txt"
    users.write_text('"postgres" ""\n')
    lines = [
        "[databases]",
        f"* = host={server.root} port={PORT}",
        "[pgbouncer]",
        "listen_addr =",
        f"listen_port = {PORT}",
        f"unix_socket_dir = {pooler.root}",
        "auth_type = trust",
        f"auth_file = {users}",
        *(f"{name} = {value}" for name, value in settings.items()),
    ]
    config = pooler.root / "pgbouncer.ini"
    config.write_text("\n".join(lines) + "\n")
    return config


if __name__ == "__main__":
    if problem := fetch():
        sys.stdout.write(f"{problem}: the tests on a real PgBouncer are skipped.\n")
