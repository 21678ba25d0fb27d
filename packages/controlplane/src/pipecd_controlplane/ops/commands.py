# SPDX-License-Identifier: Apache-2.0
"""`pipecd backup`, `pipecd restore` and `pipecd sign-in-link`."""

import time
from pathlib import Path
from typing import Final

import click

from pipecd_controlplane.ops.operator import ask_for_backup, ask_for_link
from pipecd_controlplane.store.blobs.config import FOLDER_NAME, BlobFolder
from pipecd_controlplane.store.open import (
    SqliteFolder,
    backup_database,
    exclusive_database,
    restore_database,
)

FOLDER = click.Path(file_okay=False, path_type=Path)
OBJECTS: Final = "objects (sealed logs and large values)"


@click.command()
@click.option("--data-dir", type=FOLDER, required=True, help="The folder of the server.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file to write; one that exists is left alone.",
)
def backup(*, data_dir: Path, output: Path) -> None:
    """Copy everything the server keeps into one file. The server may run, and writes it then.

    The copy is of one moment. It holds the keys of the folder too: keep it as safe as the folder.
    """
    target = output.absolute()
    made = ask_for_backup(data_dir, target)
    if made is None:
        with exclusive_database(SqliteFolder(folder=data_dir.absolute())):
            made = backup_database(
                SqliteFolder(folder=data_dir),
                BlobFolder(folder=data_dir.absolute() / FOLDER_NAME),
                target,
                now=int(time.time()),
            )
    objects = f", {made.objects} objects" if made.objects else ""
    click.echo(f"wrote {output}: {made.size} bytes of database{objects}, schema {made.schema}")
    if made.elsewhere:
        click.echo(f"{OBJECTS} are not in it: {made.elsewhere} has backups of its own")
    if made.lost:
        click.echo(
            f"warning: {made.lost} {OBJECTS} are missing or damaged, and not in it;"
            " where spec.filestore names a place of its own, back that up too",
            err=True,
        )
    elif made.keeps_objects:
        click.echo(
            f"warning: {OBJECTS} have moved from this folder to another store, with their mark:"
            " back that up too",
            err=True,
        )


@click.command()
@click.option(
    "--input",
    "archive",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="A file that `pipecd backup` wrote.",
)
@click.option(
    "--data-dir",
    type=FOLDER,
    required=True,
    help="The folder to make; one that holds a database is left alone.",
)
def restore(*, archive: Path, data_dir: Path) -> None:
    """Make a data folder from a backup, for a server to be started in."""
    made = restore_database(archive, SqliteFolder(folder=data_dir.absolute()))
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(made.created_at))
    objects = f", {made.objects} objects" if made.objects else ""
    click.echo(f"restored {data_dir} as of {at}{objects}, schema {made.schema}")
    if made.lost:
        click.echo(
            f"warning: {made.lost} {OBJECTS} are not in the backup: they must be where"
            " spec.filestore says",
            err=True,
        )
    elif made.keeps_objects:
        click.echo(
            f"warning: {OBJECTS} have a store of their own, whose mark is not in the backup:"
            " spec.filestore must say where it is",
            err=True,
        )
    if made.keeps_objects:
        click.echo(
            "its objects may be in use by the server that the backup is from, so it deletes none of"
            " them: once no other server uses them, run `pipecd take-over-objects`"
        )


@click.command("sign-in-link")
@click.option(
    "--data-dir", type=FOLDER, required=True, help="The folder of the server, which runs."
)
@click.option("--project", default="", metavar="NAME", help="Needed where there are several.")
def sign_in_link(*, data_dir: Path, project: str) -> None:
    """Print a link that signs a browser on this machine in, once.

    Whoever opens it is an admin of the project. It works for ten minutes, and until the server is
    restarted. Show it to nobody.
    """
    click.echo(ask_for_link(data_dir, project))
