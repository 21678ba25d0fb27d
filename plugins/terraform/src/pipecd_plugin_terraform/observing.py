# SPDX-License-Identifier: Apache-2.0
"""What is there, and whether it is what git says: asked of the program, no more than needed.

A state in a file is read when the file has changed; one that is elsewhere after a while, which
doubles as long as it stays the same. A plan is made when commit, options or state have changed;
else again after a while as well: what changed outside does not touch the state.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Final

from pipecd_plugin_terraform.changes import Changes
from pipecd_plugin_terraform.command import OutputTooLargeError, Terraform
from pipecd_plugin_terraform.config import (
    TerraformOptions,
    TerraformPluginConfig,
    TerraformTarget,
)
from pipecd_plugin_terraform.livestate import (
    MAY_HOLD_VALUES,
    TOO_LARGE,
    StateView,
    list_view,
    read_view,
)
from pipecd_plugin_terraform.program import TerraformPrograms
from pipecd_plugin_terraform.source import (
    Configuration,
    choose_target,
    expand_nothing,
    has_secret_variables,
)
from pipecd_sdk import (
    DeployTarget,
    LiveContext,
    Preview,
    PreviewContext,
    SyncState,
    SyncStatus,
    TargetError,
)
from pipecd_sdk.kit.rereads import Reread
from pipecd_sdk.scratch import Scratch
from pipecd_sdk.scripts.environment import locate_scripts
from pipecd_sdk.scripts.records import KEEP_RECORDS_SECONDS, sweep

LONGEST_STATE_PAUSE: Final = timedelta(minutes=15)
"""How long a state is not read that is no file of this machine."""
CACHE: Final = ".terraform"
"""Beside the records of scripts, which piped gives a place that outlives the plugin."""
LONGEST_PAUSE: Final = timedelta(hours=1)
COMMAND_LIMIT: Final = timedelta(minutes=30)


class TerraformScratch(Scratch):
    """A temporary folder that only we can read, until it is closed."""

    prefix: ClassVar[str] = "pipecd-terraform-"


_Mark = tuple[bytes, tuple[int, ...] | None]
"""Of commit and options, and of the state's file."""


@dataclass(slots=True, kw_only=True)
class _ObservedApplication:
    """What is known of one application."""

    folder: Path
    """What init has made for it, also for the next process: providers are large."""
    state: Reread[StateView]
    changes: Reread[Changes]
    view: StateView | None = None
    file: Path | None = None
    """The file of the state; None when it is elsewhere, or was not read yet."""
    mark: _Mark | None = None
    """Of what was read last."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One command at a time in the folder."""


class Observer:
    """Reads states, plans for drift and previews."""

    def __init__(self, programs: TerraformPrograms) -> None:
        self._programs = programs
        self._known: dict[tuple[str, str], _ObservedApplication] = {}
        self._room: asyncio.Semaphore | None = None
        self.plans = 0
        """How many plans were made."""

    async def look(
        self,
        ctx: LiveContext,
        target: DeployTarget,
        config: TerraformPluginConfig,
        *,
        is_fresh: bool = False,
    ) -> StateView:
        """Returns what is in the state. Raises StageFailedError.

        `is_fresh`: what is in it now, wherever it is kept; else it may be some minutes old.
        """
        choose_target(ctx.targets)
        known = self._recall(ctx, target, config)
        stamp = _make_stamp(ctx, target)
        mark = (stamp, await asyncio.to_thread(_examine, known.file))
        if known.file is not None and known.view is not None and known.mark == mark:
            return known.view

        async def read() -> StateView:
            async with self._open(ctx, target, config, known, plans=False) as terraform:
                return await self._read(terraform, ctx, known, stamp)

        return await known.state.get(mark, read, clock=ctx.clock, is_fresh=is_fresh)

    def forget(self, application_id: str) -> None:
        """Lets the state of an application be read anew: a stage has changed it."""
        for key, known in self._known.items():
            if key[0] == application_id:
                known.mark = None
                known.state.forget()

    def _recall(
        self, ctx: LiveContext, target: DeployTarget, config: TerraformPluginConfig
    ) -> _ObservedApplication:
        key = (ctx.application_id, target.name)
        if key not in self._known:
            name = hashlib.blake2b("\0".join(key).encode(), digest_size=16).hexdigest()
            first = timedelta(seconds=config.drift_interval.total_seconds())
            self._known[key] = _ObservedApplication(
                folder=locate_scripts() / CACHE / name,
                state=Reread(first=min(first, LONGEST_STATE_PAUSE), longest=LONGEST_STATE_PAUSE),
                changes=Reread(first=first, longest=LONGEST_PAUSE),
            )
        return self._known[key]

    async def _read(
        self, terraform: Terraform, ctx: LiveContext, known: _ObservedApplication, stamp: bytes
    ) -> StateView:
        known.file = await asyncio.to_thread(terraform.locate_state)
        # Looked at before it is read: what is written meanwhile is read the next time.
        seen = await asyncio.to_thread(_examine, known.file)
        lineage, serial = await terraform.read_serial()
        view = known.view
        is_same = view is not None and (view.lineage, view.serial) == (lineage, serial)
        if view is None or not is_same or known.mark is None or known.mark[0] != stamp:
            view = await _read_view(terraform, ctx.source.options, lineage, serial)
        known.view, known.mark = view, (stamp, seen)
        return view

    async def compare(
        self,
        ctx: LiveContext,
        target: DeployTarget,
        config: TerraformPluginConfig,
        view: StateView,
    ) -> Changes:
        """Returns what an apply of the commit would change. Raises StageFailedError."""
        known = self._recall(ctx, target, config)

        async def plan() -> Changes:
            async with self._open(ctx, target, config, known, plans=True) as terraform:
                return await self._plan(terraform, known.folder)

        key = (_make_stamp(ctx, target), view.lineage, view.serial)
        return await known.changes.get(key, plan, clock=ctx.clock)

    async def _plan(self, terraform: Terraform, folder: Path) -> Changes:
        self.plans += 1
        file = folder / "drift.tfplan"
        try:
            return (await terraform.plan(file, None)).changes
        finally:
            file.unlink(missing_ok=True)

    @asynccontextmanager
    async def _open(
        self,
        ctx: LiveContext,
        target: DeployTarget,
        config: TerraformPluginConfig,
        known: _ObservedApplication,
        *,
        plans: bool,
    ) -> AsyncIterator[Terraform]:
        """Makes the program ready for a commit's files; only a few run at a time.

        `plans`: whether it plans; else it only reads the state.
        """
        configuration = Configuration.open(ctx.source, target)
        if plans:
            settings = await configuration.settings(expand_nothing)
        else:
            settings = await configuration.reading_settings()
        version = configuration.options.terraform_version
        program = await self._programs.find(config.program, version, ctx.tools)
        folder = known.folder
        await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        async with known.lock, self._take_turn(config):
            terraform = Terraform(
                program,
                configuration.folder.path,
                settings,
                name=config.program,
                data=folder / "data",
                limit=COMMAND_LIMIT,
            )
            await terraform.prepare(None)
            yield terraform

    @asynccontextmanager
    async def _take_turn(self, config: TerraformPluginConfig) -> AsyncIterator[None]:
        if self._room is None:
            self._room = asyncio.Semaphore(config.at_once)
        async with self._room:
            yield

    async def preview(
        self, ctx: PreviewContext, target: DeployTarget, config: TerraformPluginConfig
    ) -> Preview:
        """Returns what a branch would change; with credentials of its own, where it is allowed."""
        choose_target(ctx.targets)
        options: TerraformTarget = target.config
        if not options.plan_preview.enabled:
            raise TargetError(
                f"plan previews are off for the deploy target {target.name!r}: a plan runs what "
                "the branch brings",
                hint="the operator of piped allows them with planPreview.enabled, and gives them "
                "credentials that can only read",
            )
        configuration = Configuration.open(ctx.source.target, target)
        version = configuration.options.terraform_version
        program = await self._programs.find(config.program, version, ctx.tools)
        with TerraformScratch() as scratch:
            home = scratch.path / "home"
            home.mkdir(mode=0o700)
            settings = await configuration.preview_settings(home)
            async with self._take_turn(config):
                terraform = Terraform(
                    program,
                    configuration.folder.path,
                    settings,
                    name=config.program,
                    data=scratch.path / "data",
                    limit=COMMAND_LIMIT,
                )
                await terraform.prepare(None)
                changes = await self._plan(terraform, scratch.path)
        return Preview(
            summary=changes.summary,
            no_change=changes.is_empty,
            details=changes.render(),
            language="hcl",
        )


def sweep_caches() -> None:
    """Removes what init has made for applications that nobody has looked at for a week."""
    caches = locate_scripts() / CACHE
    for left in caches.glob("*/drift.tfplan"):
        left.unlink(missing_ok=True)  # of a process that was killed; it may hold secrets
    sweep(caches, older_than=KEEP_RECORDS_SECONDS)


def to_sync_state(changes: Changes, commit: str) -> SyncState:
    """Returns whether what is there is what the commit says."""
    if changes.is_empty:
        return SyncState(status=SyncStatus.SYNCED)
    short = changes.summary
    head = f"To bring it to {commit[:7]}: {short}" if commit else short
    return SyncState(
        status=SyncStatus.OUT_OF_SYNC, short_reason=short, reason=f"{head}\n\n{changes.render()}"
    )


async def _read_view(
    terraform: Terraform, options: TerraformOptions, lineage: str, serial: int
) -> StateView:
    workspace = options.workspace
    # A secret that is not opened cannot be masked either: so what may hold it is not read.
    why = MAY_HOLD_VALUES if has_secret_variables(options) else ""
    if why and not lineage:  # there is no state yet, and the program lists none
        return read_view({}, lineage=lineage, serial=serial, workspace=workspace)
    if not why:
        try:
            state = await terraform.read_state()
        except OutputTooLargeError:
            why = TOO_LARGE
        else:
            return read_view(state, lineage=lineage, serial=serial, workspace=workspace)
    found, is_cut = await terraform.list_addresses()
    return list_view(
        found,
        lineage=lineage,
        serial=serial,
        workspace=workspace,
        why=why,
        is_cut=is_cut,
    )


def _examine(file: Path | None) -> tuple[int, ...] | None:
    """Returns what changes with a file; None without one. Its content is not read."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    if found is None:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _make_stamp(ctx: LiveContext, target: DeployTarget) -> bytes:
    """Returns what changes with the commit, the application file and the deploy target."""
    parts = (ctx.source.commit_hash, ctx.source.options, target.config)
    text = "\0".join(repr(each) for each in parts).encode()
    return hashlib.blake2b(text + ctx.source.config, digest_size=16).digest()
