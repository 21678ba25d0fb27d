# SPDX-License-Identifier: Apache-2.0
"""`pipecd project`: what upstream's owner page does, for a user who may write the data folder.

The server must not run meanwhile: one process owns the folder. Nothing of this is on the network.
"""

import re
import time
from pathlib import Path

import click

from pipecd_controlplane.serve.stopped_server import CONFIG_FILE, DATA_DIR, run_with_stores
from pipecd_controlplane.store.auditing import auditing
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.audit_actors import (
    ADD_PROJECT,
    RESET_PASSWORD,
    describe_act,
    describe_operator,
)
from pipecd_controlplane.usecases.keys import hash_of, new_password
from pipecd_controlplane.usecases.project import ProjectSettings
from pipecd_model.errors import ConfigError, StateError
from pipecd_runtime.files import write_atomically
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.model import project_pb2

PASSWORD_FILE = click.option(
    "--password-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the password to this new file, for its user alone, rather than print it.",
)
ADMIN = "admin"
# A piped's token has the project between commas, and a URL of the sign-in page after a `=`.
PROJECT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@click.group()
def project() -> None:
    """Projects of a server that is stopped."""


@project.command("list")
@DATA_DIR
@CONFIG_FILE
def list_projects(*, data_dir: Path, config_file: Path | None) -> None:
    """Print the projects."""

    async def work(kept: Stores) -> list[project_pb2.Project]:
        return await kept.projects.all()

    for each in run_with_stores(data_dir, config_file, work):
        admin = "no static admin" if each.static_admin_disabled else each.static_admin.username
        sso = each.shared_sso_name or ("own single sign-on" if each.HasField("sso") else "-")
        click.echo(f"{each.id}\t{admin}\t{sso}\t{make_printable_line(each.desc)}")


@project.command()
@click.argument("project_id")
@DATA_DIR
@CONFIG_FILE
@click.option("--description", default="")
@click.option("--shared-sso", default="", help="A name of sharedSSOConfigs in the config file.")
@click.option("--allow-stray-as-viewer", is_flag=True, help="Who has no role may look.")
@PASSWORD_FILE
@click.option("--address", default="ADDRESS", help="Of the server, for the steps that are printed.")
def add(
    project_id: str,
    *,
    data_dir: Path,
    config_file: Path | None,
    description: str,
    shared_sso: str,
    allow_stray_as_viewer: bool,
    password_file: Path | None,
    address: str,
) -> None:
    """Make a project, and print its static admin's password, once, and what to do next."""
    if not PROJECT_ID.fullmatch(project_id):
        raise ConfigError(
            f"{project_id[:100]!r} is no name for a project",
            hint="letters, digits, and . _ - after the first one; at most 100",
        )
    password = new_password()
    if password_file is not None:
        _write_password(password_file, password)

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

        with auditing(describe_act(project_id, describe_operator(), ADD_PROJECT, at)):
            await kept.database.write(insert)

    try:
        # Also before the first start of the server.
        run_with_stores(data_dir, config_file, work, makes_database=True)
    except BaseException:
        if password_file is not None:
            password_file.unlink(missing_ok=True)  # it would open nothing
        raise
    _tell(project_id, password, password_file)
    _tell_next_steps(project_id, data_dir, address)


@project.command("reset-password")
@click.argument("project_id")
@DATA_DIR
@CONFIG_FILE
def reset_password(project_id: str, *, data_dir: Path, config_file: Path | None) -> None:
    """Give a project's static admin a new password, and print it, once.

    Whoever was signed in with the old one no longer is.
    """
    password = new_password()

    async def work(kept: Stores) -> None:
        settings = ProjectSettings(kept)
        at = int(time.time())
        with auditing(describe_act(project_id, describe_operator(), RESET_PASSWORD, at)):
            await settings.set_static_admin(project_id, ADMIN, password)
            await settings.switch_static_admin(project_id, disabled=False)

    run_with_stores(data_dir, config_file, work)
    _tell(project_id, password)


def _write_password(path: Path, password: str) -> None:
    try:
        write_atomically(path, f"{password}\n".encode(), mode=0o600, replace=False)
    except FileExistsError:
        raise StateError(f"the file {str(path)!r} exists already", hint="name a new one") from None
    except OSError as error:
        raise StateError(f"cannot write {str(path)!r}: {error.strerror}") from None


def _tell(project_id: str, password: str, password_file: Path | None = None) -> None:
    secret = f"password {password}" if password_file is None else f"password file {password_file}"
    click.echo(f"project {project_id}\nusername {ADMIN}\n{secret}")


def _tell_next_steps(project_id: str, data_dir: Path, address: str) -> None:
    # Apart from what a script reads.
    click.echo(
        f"""
Next:
  1. Start the server again:   pipecd server --data-dir {data_dir} …
  2. Sign in as its admin:     pipectl login {address} --project {project_id} --username {ADMIN}
  3. Register an agent:        pipectl piped register --name NAME
     and in its piped.yaml:    projectID: {project_id}
  4. A key for programs:       pipectl api-key create NAME --role read-write
docs/guides/signing-in.md says more: contexts, single sign-on, who may do what.""",
        err=True,
    )
