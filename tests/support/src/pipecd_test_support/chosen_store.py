# SPDX-License-Identifier: Apache-2.0
"""Which store the control planes of a test keep their rows in: SQLite, or PostgreSQL.

`conftest.py` of the tree chooses before each test; whatever starts a control plane for a test asks
here. Of a data folder the choice is the same each time, so that a server can be started again.

The tree's `conftest.py` loads this, so what it needs of the control plane is loaded when it is
used.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from pipecd_controlplane.store.open import DatabaseConfig
    from pipecd_controlplane.store.postgres.config import PostgresServer

KINDS: Final = ("sqlite", "postgresql")
VARIABLE: Final = "PIPECD_TEST_STORE"
"""Holds the choice: an environment, so that programs of tests that start others pass it on."""

ON_BOTH: Final = (
    "packages/controlplane/tests/api/test_go_agents.py",
    "packages/controlplane/tests/api/test_isolation.py",
    "packages/controlplane/tests/api/test_my_rights.py",
    "packages/controlplane/tests/auth",
    "packages/controlplane/tests/matrix",
    "packages/controlplane/tests/serve",
    "packages/controlplane/tests/signin/test_last_way_in.py",
    "packages/controlplane/tests/signin/test_password.py",
    "packages/controlplane/tests/signin/test_sign_in_link.py",
    "packages/controlplane/tests/signin/test_terminal_login.py",
    "packages/controlplane/tests/signin/test_web_stream.py",
    "packages/controlplane/tests/store",
    "packages/controlplane/tests/usecases",
    "packages/controlplane/tests/wire",
)
"""Tests here that use the fixture `store_kind` run once on each; the others where they are told."""

_databases: dict[Path, str] = {}


def is_on_both(path: Path, root: Path) -> bool:
    """Whether the tests of a file run on both stores."""
    return any(path.is_relative_to(root / each) for each in ON_BOTH)


def choose_store(kind: str) -> None:
    """Lets all control planes from now on keep their rows in a store of this kind."""
    os.environ[VARIABLE] = kind


def get_chosen_store() -> str:
    kind = os.environ.get(VARIABLE) or KINDS[0]
    assert kind in KINDS, f"{VARIABLE}={kind}: it is one of {', '.join(KINDS)}"
    return kind


def count_examples(many: int) -> int:
    """Returns how many examples of a property to try, when there are so many on SQLite.

    A statement that goes to another process costs more, and the rules are the same.
    """
    return many if get_chosen_store() == KINDS[0] else many // 4


def find_postgres(folder: Path) -> "PostgresServer | None":
    """Returns the database for a server of this data folder; None is the SQLite file in it."""
    if get_chosen_store() != "postgresql":
        return None
    from pipecd_controlplane.store.postgres.config import PostgresServer  # noqa: PLC0415
    from pipecd_test_support.postgres import shared_postgres  # noqa: PLC0415

    server = shared_postgres()
    if folder not in _databases:
        _databases[folder] = server.create_database()
    return PostgresServer(url=server.url(_databases[folder]), connections=4)


def choose_database(folder: Path, *, repeat_units: bool = False) -> "DatabaseConfig":
    """Returns where the rows of this data folder are, in the chosen store."""
    from pipecd_controlplane.store.open import SqliteFolder  # noqa: PLC0415

    return find_postgres(folder) or SqliteFolder(folder=folder, repeat_units=repeat_units)


@contextmanager
def temporary_database() -> Iterator["DatabaseConfig"]:
    """Yields an empty database of the chosen store, of which nothing stays."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield choose_database(Path(folder))
        finally:
            clear_databases(Path(folder))


def add_store_flags(folder: Path, flags: Sequence[str] = ()) -> list[str]:
    """Returns the flags for a `pipecd server` of this data folder.

    On PostgreSQL a configuration file names the database: the given one with that added to it.
    """
    found = find_postgres(folder)
    if found is None:
        return list(flags)
    document: dict[str, Any] = {"apiVersion": "pipecd.dev/v1beta1", "kind": "ControlPlane"}
    others, given = _split_config_file(flags)
    if given is not None:
        document = yaml.safe_load(given.read_bytes())
    spec = document.setdefault("spec", {})
    spec["datastore"] = {"type": "POSTGRESQL", "config": {"url": found.url}}
    file = folder.with_name(f"{folder.name}-postgresql.yaml")
    file.write_text(yaml.safe_dump(document))
    return [*others, f"--config-file={file}"]


def _split_config_file(flags: Sequence[str]) -> tuple[list[str], Path | None]:
    """Returns the flags without the configuration file, and that file."""
    others: list[str] = []
    file = None
    rest = iter(flags)
    for flag in rest:
        name, is_joined, value = flag.partition("=")
        if name == "--config-file":
            file = Path(value if is_joined else next(rest))
        else:
            others.append(flag)
    return others, file


def clear_databases(under: Path) -> None:
    """Gives back the databases of all data folders in this one."""
    given = [each for each in _databases if each.is_relative_to(under)]
    if not given:
        return
    from pipecd_test_support.postgres import shared_postgres  # noqa: PLC0415

    for folder in given:
        shared_postgres().clear_database(_databases.pop(folder))
