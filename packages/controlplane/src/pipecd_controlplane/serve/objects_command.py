# SPDX-License-Identifier: Apache-2.0
"""`pipecd take-over-objects`: the operator says that nobody else uses the objects of a database."""

from pathlib import Path

import click

from pipecd_controlplane.serve.stopped_server import CONFIG_FILE, DATA_DIR, run_with_stores
from pipecd_controlplane.store.kept_objects import take_over_objects as take_over
from pipecd_controlplane.store.stores import Stores


@click.command("take-over-objects")
@DATA_DIR
@CONFIG_FILE
def take_over_objects(*, data_dir: Path, config_file: Path | None) -> None:
    """Let a restored server seal and delete objects: no other server uses them any more.

    A database that was restored without its objects deletes none of them, because the server that
    the backup is from may still need them, and seals none beside them. A server with a data folder
    of its own must not run meanwhile.
    """

    async def work(kept: Stores) -> bool:
        return await take_over(kept.database)

    if run_with_stores(data_dir, config_file, work):
        click.echo("from now on the server seals, and deletes the objects that it does not need")
    else:
        click.echo("nothing to do: it deletes the objects that it does not need already")
