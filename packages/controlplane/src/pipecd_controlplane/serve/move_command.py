# SPDX-License-Identifier: Apache-2.0
"""`pipecd move`: everything that a stopped server keeps goes to another database or blob store."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click

from pipecd_controlplane.serve.move_output import (
    describe_sizes,
    make_output,
    print_next_steps,
    print_sizes,
)
from pipecd_controlplane.serve.move_places import (
    MoveFlags,
    MovePlaces,
    find_places,
    find_source,
)
from pipecd_controlplane.store.blobs.blob_store import NoBlobStoreError
from pipecd_controlplane.store.blobs.config import BlobConfig, S3Bucket
from pipecd_controlplane.store.blobs.mark import has_mark, put_mark
from pipecd_controlplane.store.blobs.open import look_at_blobs, make_blobs, open_blobs
from pipecd_controlplane.store.move.decide import MoveStep
from pipecd_controlplane.store.move.mark import (
    add_mark,
    has_kept_objects,
    move_mark,
    part_from_original,
    read_mark,
    refuse_stranger,
    refuse_unmarked,
)
from pipecd_controlplane.store.move.objects import (
    OBJECTS,
    ObjectMove,
    list_some_references,
    measure_objects,
)
from pipecd_controlplane.store.move.open import open_source, open_target
from pipecd_controlplane.store.move.progress import MoveProgress
from pipecd_controlplane.store.move.rows import RowMove
from pipecd_controlplane.store.move.sides import MovableDatabase
from pipecd_controlplane.store.open import DatabaseConfig
from pipecd_model.errors import StateError

FILE: Final = click.Path(dir_okay=False, exists=True, path_type=Path)
FOLDER: Final = click.Path(file_okay=False, path_type=Path)

HAS_ALL_ROWS: Final = frozenset({MoveStep.MARK_SOURCE, MoveStep.NOTHING})
"""Where the target had them before this command."""


@click.command()
@click.option(
    "--data-dir",
    type=FOLDER,
    help="The data folder of the server that is stopped. Default: the folder of"
    " spec.datastore.config.path in --from-config.",
)
@click.option(
    "--from-config",
    type=FILE,
    help="The configuration of the server until now. Default: the SQLite file in --data-dir.",
)
@click.option("--to-config", type=FILE, help="The configuration of the server from now on.")
@click.option(
    "--to-data-dir",
    type=FOLDER,
    help="The data folder of the server from now on. Default: --data-dir.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say what would be moved, and whether it can be; change nothing.",
)
@click.option("--verify-only", is_flag=True, help="Compare both sides row by row; change nothing.")
@click.option(
    "--start-over",
    is_flag=True,
    help="Empty a target whose move is not complete, and begin anew.",
)
@click.option(
    "--undo",
    is_flag=True,
    help="Let a server use the source again, as it is: a move is given up, or was a mistake.",
)
@click.option(
    "--skip-missing",
    is_flag=True,
    help="Go on without objects that are missing or damaged in the source; each is named.",
)
def move(
    *,
    data_dir: Path | None,
    from_config: Path | None,
    to_config: Path | None,
    to_data_dir: Path | None,
    dry_run: bool,
    verify_only: bool,
    start_over: bool,
    undo: bool,
    skip_missing: bool,
) -> None:
    """Move everything that a stopped server keeps to another database or blob store.

    \b
      pipecd move --data-dir /var/lib/pipecd --to-config postgresql.yaml

    moves a SQLite file into an empty database of PostgreSQL, which postgresql.yaml names. The same
    the other way round, into a SQLite file of a new folder:

    \b
      pipecd move --from-config postgresql.yaml --to-data-dir /var/lib/pipecd-new

    It can be stopped or killed at any time: the same command goes on where it stopped. Every row is
    compared at the end, and only then may a server use the target. The source keeps its rows and is
    marked: a server that is started with it says where everything is.
    """
    if sum((dry_run, verify_only, start_over, undo)) > 1:
        raise click.UsageError(
            "--dry-run, --verify-only, --start-over and --undo exclude each other"
        )
    flags = MoveFlags(
        data_dir=data_dir, from_config=from_config, to_config=to_config, to_data_dir=to_data_dir
    )
    if undo:
        _run(_undo(find_source(flags).database))
        return
    places = find_places(flags)
    if dry_run:
        _run(_rehearse(places))
    elif verify_only:
        _run(_verify(places))
    elif places.has_other_database:
        _run(_move(places, start_over=start_over, skips_lost=skip_missing))
    else:
        _run(_move_objects_alone(places, skips_lost=skip_missing))


def _run(work: Coroutine[None, None, None]) -> None:
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        click.echo("\nthe same command goes on where it stopped", err=True)
        raise


async def _move(places: MovePlaces, *, start_over: bool, skips_lost: bool) -> None:
    progress = make_output()
    async with _open_rows(places, progress) as rows:

        async def move_objects(database: MovableDatabase) -> None:
            if not places.has_other_blobs:
                return
            mark = await read_mark(database)
            moved = await _copy_objects(places, database, mark, progress, skips_lost=skips_lost)
            if moved is not None and mark:
                # It stays in the source, too: that database could be used again.
                await put_mark(moved.target, mark)

        step = await rows.run(start_over=start_over, move_objects=move_objects)
        if step in HAS_ALL_ROWS and places.has_other_blobs:
            # Its rows may be in use for long, and the objects wanted in another place only now.
            await _move_objects_of(places, rows.target, progress, skips_lost=skips_lost)
        done = "now, and verified"
        if step is MoveStep.NOTHING:
            done = "already"
            done += ", its objects are moved" if places.has_other_blobs else ", nothing was done"
        click.echo(f"everything is in {rows.target.name} {done}")
        print_next_steps(places)


async def _move_objects_alone(places: MovePlaces, *, skips_lost: bool) -> None:
    """Moves to another blob store; the rows stay where they are."""
    async with open_source(places.old.database) as database:
        await _move_objects_of(places, database, make_output(), skips_lost=skips_lost)
        click.echo(f"the rows stay in {database.name}")
        print_next_steps(places)


async def _move_objects_of(
    places: MovePlaces, database: MovableDatabase, progress: MoveProgress, *, skips_lost: bool
) -> None:
    """Moves the objects of rows that stay: afterwards only the new store is that of the database.

    Where its rows were moved with their objects before, both stores stay marked as they are.
    So does the source of a copy, whose original may use it.
    """
    mark = await read_mark(database)
    is_copy = await has_kept_objects(database)
    async with database.open_snapshot():
        moved = await _copy_objects(places, database, mark, progress, skips_lost=skips_lost)
    if moved is None:
        return
    if is_copy:
        await part_from_original(database, mark, moved.source, moved.target, progress)
    elif not mark:
        await add_mark(database, moved.target)
    elif not places.has_other_database or not await has_mark(moved.target, mark):
        await move_mark(mark, moved.source, moved.target, progress)


async def _copy_objects(
    places: MovePlaces,
    database: MovableDatabase,
    mark: str,
    progress: MoveProgress,
    *,
    skips_lost: bool,
) -> ObjectMove | None:
    """Copies what rows refer to; returns both stores, None when the database has none."""
    if not (await measure_objects(database)).rows and not mark:
        return None
    old, new = _require_blobs(places)
    if mark and not skips_lost:
        await refuse_stranger(mark, old, new)
    source = await open_blobs(old, referred=await list_some_references(database))
    target = await open_blobs(new)
    work = ObjectMove(source=source, target=target, progress=progress, skips_lost=skips_lost)
    await work.run(database)
    return work


async def _verify_objects(
    places: MovePlaces, database: MovableDatabase, progress: MoveProgress
) -> None:
    mark = await read_mark(database)
    if not (await measure_objects(database)).rows and not mark:
        return
    old, new = _require_blobs(places)
    target = await look_at_blobs(new, referred=await list_some_references(database))
    # The source is not read: the rows know what each object is.
    await ObjectMove(source=make_blobs(old), target=target, progress=progress).verify(database)
    if mark:
        await refuse_unmarked(mark, new)


async def _rehearse_objects(places: MovePlaces, database: MovableDatabase) -> None:
    """Says from where to where objects would be copied. Raises when one of the two is refused."""
    mark = await read_mark(database)
    size = await measure_objects(database)
    if size.rows:
        print_sizes({OBJECTS: size})
    if not size.rows and not mark:
        return
    if places.has_other_database:
        click.echo(f"the objects {'move, too' if places.has_other_blobs else 'stay'}")
    if not places.has_other_blobs:
        return
    old, new = _require_blobs(places)
    referred = await list_some_references(database)
    if mark:
        await refuse_stranger(mark, old, new)
    source = await look_at_blobs(old, referred=referred)
    note = ""
    try:
        await look_at_blobs(new, referred=referred)
    except NoBlobStoreError:
        if isinstance(new, S3Bucket):
            if not new.create_bucket:
                raise
            note = ", which would be made"
        elif not new.folder.exists():
            note = ", which would be made"
    click.echo(f"objects from  {source.place}\nobjects to    {make_blobs(new).place}{note}")


def _require_blobs(places: MovePlaces) -> tuple[BlobConfig, BlobConfig]:
    old, new = places.old.blobs, places.new.blobs
    if old is None or new is None:
        flag = "--data-dir" if old is None else "--to-data-dir"
        raise StateError(
            "there are objects in a data folder, and it is not said in which", hint=f"name {flag}"
        )
    return old, new


async def _rehearse(places: MovePlaces) -> None:
    """Says what would be done."""
    progress = make_output()
    if not places.has_other_database:
        async with open_source(places.old.database) as database, database.open_snapshot():
            await _rehearse_objects(places, database)
            click.echo("the objects would be copied, the rows stay; nothing was changed")
        return
    async with _open_rows(places, progress, may_write=False) as rows:
        step = await rows.plan()
        sizes = await rows.look()
        print_sizes(sizes)
        database = rows.target if step in HAS_ALL_ROWS else rows.source
        async with database.open_snapshot():
            await _rehearse_objects(places, database)
        click.echo(f"from  {rows.source.name}\nto    {rows.target.name}")
        click.echo(f"{describe_sizes(sizes)}: the move would {step.value}; nothing was changed")


async def _verify(places: MovePlaces) -> None:
    progress = make_output()
    if not places.has_other_database:
        async with open_source(places.old.database) as database, database.open_snapshot():
            await _verify_objects(places, database, progress)
            click.echo("the objects are the same")
        return
    async with _open_rows(places, progress, may_write=False) as rows:
        found = await rows.verify()
        rows.refuse_differences(found)
        if places.has_other_blobs:
            async with rows.source.open_snapshot():
                await _verify_objects(places, rows.source, progress)
        click.echo(f"{found.rows:,} rows are the same in {rows.target.name}")


async def _undo(config: DatabaseConfig) -> None:
    async with open_source(config, allows_older=True) as source:
        record = await source.read_record()
        if record is None or record.role != "source":
            raise StateError(f"{source.name} was not moved", hint="there is nothing to undo")
        await source.write_record(None)
        click.echo(f"a server may use {source.name} again; {record.other_side} is not touched")
        if record.state == "complete":
            click.echo(
                "warning: what happened there since is not here. Let only one of them be used:"
                " where they share objects, each deletes what it does not know",
                err=True,
            )


@asynccontextmanager
async def _open_rows(
    places: MovePlaces, progress: MoveProgress, *, may_write: bool = True
) -> AsyncIterator[RowMove]:
    async with (
        open_source(places.old.database) as source,
        open_target(places.new.database, may_write=may_write) as target,
    ):
        yield RowMove(source=source, target=target, progress=progress, now=lambda: int(time.time()))
