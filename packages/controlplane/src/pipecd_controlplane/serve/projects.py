# SPDX-License-Identifier: Apache-2.0
"""`pipecd project`: what upstream's owner page does, for a user who may write the data folder.

The server must not run meanwhile: one process owns the folder. Nothing of this is on the network.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases.keys import hash_of, new_password
from pipecd_controlplane.usecases.project import ProjectSettings
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.model import project_pb2

T = TypeVar("T")

FOLDER = click.Path(file_okay=False, exists=True, path_type=Path)
DATA_DIR = click.option("--data-dir", type=FOLDER, required=True, help="The server's data folder.")
ADMIN = "admin"


@click.group()
def project() -> None:
    """Projects of a server that is stopped."""


@project.command("list")
@DATA_DIR
def list_projects(*, data_dir: Path) -> None:
    """Print the projects."""

    async def work(kept: Stores) -> list[project_pb2.Project]:
        return await kept.projects.all()

    for each in _run_with_stores(data_dir, work):
        admin = "no static admin" if each.static_admin_disabled else each.static_admin.username
        sso = each.shared_sso_name or ("own single sign-on" if each.HasField("sso") else "-")
        click.echo(f"{each.id}\t{admin}\t{sso}\t{make_printable_line(each.desc)}")


@project.command()
@click.argument("project_id")
@DATA_DIR
@click.option("--description", default="")
@click.option("--shared-sso", default="", help="A name of sharedSSOConfigs in the config file.")
@click.option("--allow-stray-as-viewer", is_flag=True, help="Who has no role may look.")
def add(
    project_id: str,
    *,
    data_dir: Path,
    description: str,
    shared_sso: str,
    allow_stray_as_viewer: bool,
) -> None:
    """Make a project, and print its static admin's password, once."""
    password = new_password()

    async def work(kept: Stores) -> None:
        at = int(time.time())
        made = project_pb2.Project(
            id=project_id,
            desc=description,
            shared_sso_name=shared_sso,
            allow_stray_as_viewer=allow_stray_as_viewer,
            static_admin=project_pb2.ProjectStaticUser(
                username=ADMIN, password_hash=await hash_of(password)
            ),
            created_at=at,
            updated_at=at,
        )

        async def insert(transaction: Transaction) -> None:
            await kept.projects.add_in(transaction, made)

        await kept.database.write(insert)

    _run_with_stores(data_dir, work)
    _tell(project_id, password)


@project.command("reset-password")
@click.argument("project_id")
@DATA_DIR
def reset_password(project_id: str, *, data_dir: Path) -> None:
    """Give a project's static admin a new password, and print it, once.

    Whoever was signed in with the old one no longer is.
    """
    password = new_password()

    async def work(kept: Stores) -> None:
        settings = ProjectSettings(kept)
        await settings.set_static_admin(project_id, ADMIN, password)
        await settings.switch_static_admin(project_id, disabled=False)

    _run_with_stores(data_dir, work)
    _tell(project_id, password)


def _run_with_stores(folder: Path, work: Callable[[Stores], Awaitable[T]]) -> T:
    folder = folder.absolute()

    async def run() -> T:
        async with open_database(
            SqliteFolder(folder=folder), on_commit=lambda _changes: None
        ) as database:
            return await work(stores(database, lambda: int(time.time())))

    return asyncio.run(run())


def _tell(project_id: str, password: str) -> None:
    click.echo(f"project {project_id}\nusername {ADMIN}\npassword {password}")
