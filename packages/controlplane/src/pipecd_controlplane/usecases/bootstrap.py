# SPDX-License-Identifier: Apache-2.0
"""The first start: creates a project with an admin key and a static admin."""

from pathlib import Path
from typing import Final

from pipecd_controlplane.store.auditing import auditing
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.audit_actors import ADD_PROJECT, SERVER, describe_act
from pipecd_controlplane.usecases.keys import hash_of, new_api_key, new_password, quick_hash
from pipecd_model.errors import ConfigError, StateError
from pipecd_model.ids import new_id
from pipecd_runtime.files import write_atomically
from pipecd_wire.model import apikey_pb2, project_pb2

DEFAULT_PROJECT: Final = "default"
KEY_FILE: Final = "admin.key"
KEY_NAME: Final = "admin"
ADMIN: Final = "admin"
PASSWORD_FILE: Final = "admin.password"  # noqa: S105 - the name of a file


async def ensure_project(stores: Stores, folder: Path, project_id: str | None, now: Now) -> None:
    """Creates the project, its admin key and its static admin, unless a project exists already.

    Key and password are written to files before they are stored: a crash in between leaves files
    that the next start replaces, never a valid key that no person has.
    """
    if existing := await stores.projects.ids():
        _check_project(existing, folder, project_id)
        return
    wanted_id, project_id = project_id, project_id or DEFAULT_PROJECT
    at = now()
    password = new_password()
    project = project_pb2.Project(
        id=project_id,
        static_admin=project_pb2.ProjectStaticUser(
            username=ADMIN, password_hash=await hash_of(password)
        ),
        created_at=at,
        updated_at=at,
    )
    key_id = new_id()
    key = new_api_key(key_id)
    record = apikey_pb2.APIKey(
        id=key_id,
        name=KEY_NAME,
        key_hash=quick_hash(key),
        project_id=project_id,
        role=apikey_pb2.APIKey.READ_WRITE,
        creator="pipecd server",
        created_at=at,
        updated_at=at,
    )
    try:
        for name, secret in ((KEY_FILE, key), (PASSWORD_FILE, password)):
            write_atomically(folder / name, f"{secret}\n".encode(), mode=0o600)
    except OSError as error:
        raise StateError(
            f"cannot write {str(folder / KEY_FILE)!r}: {error.strerror}",
            hint="see that its disk has free space and that this user may write there",
        ) from error

    async def work(transaction: Transaction) -> bool:
        """Creates the first project. Returns False when another process has done it meanwhile."""
        if await stores.projects.ids_in(transaction):
            return False
        if not await stores.projects.add_if_absent_in(transaction, project):
            return False
        await stores.api_keys.add_in(transaction, record)
        return True

    with auditing(describe_act(project_id, SERVER, ADD_PROJECT, at)):
        is_made = await stores.database.write(work)
    if not is_made:
        for name in (KEY_FILE, PASSWORD_FILE):  # what was written here opens nothing
            (folder / name).unlink(missing_ok=True)
        _check_project(await stores.projects.ids(), folder, wanted_id)


def _check_project(existing: list[str], folder: Path, project_id: str | None) -> None:
    """Raises ConfigError when the requested project does not exist."""
    if project_id is not None and project_id not in existing:
        raise ConfigError(
            f"the data folder {str(folder)!r} has no project {project_id!r}",
            hint=f"it has {', '.join(map(repr, existing))}; --project is for the first start",
        )
