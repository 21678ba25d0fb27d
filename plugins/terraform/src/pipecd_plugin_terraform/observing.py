# SPDX-License-Identifier: Apache-2.0
"""What is there, and whether it is what git says: asked of the program, no more than needed.

The state is read when it is asked for. A plan is made when commit, options or state have changed;
else again after a while, which doubles as long as the answer stays the same: what changed outside
does not touch the state.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final

from pipecd_plugin_terraform.changes import Changes
from pipecd_plugin_terraform.command import Terraform
from pipecd_plugin_terraform.config import TerraformPluginConfig, TerraformTarget
from pipecd_plugin_terraform.livestate import StateView, read_view
from pipecd_plugin_terraform.program import TerraformPrograms
from pipecd_plugin_terraform.source import Configuration, choose_target, expand_nothing
from pipecd_sdk import (
    DeployTarget,
    LiveContext,
    Preview,
    PreviewContext,
    StageFailedError,
    SyncState,
    SyncStatus,
    TargetError,
)
from pipecd_sdk.scratch import Scratch
from pipecd_sdk.scripts.environment import locate_scripts

FRESH: Final = timedelta(seconds=2)
"""How long a state counts as just read."""
CACHE: Final = ".terraform"
"""Beside the records of scripts, which piped gives a place that outlives the plugin."""
LONGEST_PAUSE: Final = timedelta(hours=1)
COMMAND_LIMIT: Final = timedelta(minutes=30)


class TerraformScratch(Scratch):
    """A temporary folder that only we can read, until it is closed."""

    prefix: ClassVar[str] = "pipecd-terraform-"


@dataclass(slots=True, kw_only=True)
class DriftAnswer:
    """An answer, and how long it holds."""

    key: tuple[bytes, str, int]
    changes: Changes | None
    error: StageFailedError | None
    until: datetime
    pause: timedelta


@dataclass(slots=True)
class _Known:
    """What is known of one application."""

    folder: Path
    """What init has made for it, also for the next process: providers are large."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stamp: bytes = b""
    view: StateView | None = None
    seen_at: datetime | None = None
    answer: DriftAnswer | None = None


class Observer:
    """Reads states, plans for drift and previews."""

    def __init__(self, programs: TerraformPrograms) -> None:
        self._programs = programs
        self._known: dict[tuple[str, str], _Known] = {}
        self._room: asyncio.Semaphore | None = None
        self.plans = 0
        """How many plans were made."""

    async def look(
        self, ctx: LiveContext, target: DeployTarget, config: TerraformPluginConfig
    ) -> StateView:
        """Returns what is in the state now. Raises StageFailedError."""
        choose_target(ctx.targets)
        known = self._recall(ctx, target)
        async with known.lock:
            stamp = _make_stamp(ctx, target)
            now = ctx.clock.now()
            if (
                known.view is not None
                and known.seen_at is not None
                and known.stamp == stamp
                and now - known.seen_at < FRESH
            ):
                return known.view
            async with self._open(ctx, target, config, known.folder) as terraform:
                await self._read(terraform, ctx, known, stamp)
            known.seen_at = now
            assert known.view is not None  # noqa: S101 - for the checker
            return known.view

    def _recall(self, ctx: LiveContext, target: DeployTarget) -> _Known:
        key = (ctx.application_id, target.name)
        if key not in self._known:
            name = hashlib.blake2b("\0".join(key).encode(), digest_size=16).hexdigest()
            self._known[key] = _Known(folder=locate_scripts() / CACHE / name)
        return self._known[key]

    async def _read(
        self, terraform: Terraform, ctx: LiveContext, known: _Known, stamp: bytes
    ) -> None:
        workspace = ctx.source.options.workspace
        lineage, serial = await terraform.read_serial()
        view = known.view
        is_same = view is not None and (view.lineage, view.serial) == (lineage, serial)
        if not is_same or known.stamp != stamp:
            state = await terraform.read_state()
            known.view = read_view(state, lineage=lineage, serial=serial, workspace=workspace)
        known.stamp = stamp

    async def compare(
        self,
        ctx: LiveContext,
        target: DeployTarget,
        config: TerraformPluginConfig,
        view: StateView,
    ) -> Changes:
        """Returns what an apply of the commit would change. Raises StageFailedError."""
        known = self._recall(ctx, target)
        async with known.lock:
            key = (_make_stamp(ctx, target), view.lineage, view.serial)
            now = ctx.clock.now()
            last = known.answer
            if last is None or last.key != key or now >= last.until:
                known.answer = last = await self._answer(ctx, target, config, known, key, now)
            if last.error is not None:
                raise last.error
            assert last.changes is not None  # noqa: S101 - for the checker
            return last.changes

    async def _answer(
        self,
        ctx: LiveContext,
        target: DeployTarget,
        config: TerraformPluginConfig,
        known: _Known,
        key: tuple[bytes, str, int],
        now: datetime,
    ) -> DriftAnswer:
        changes: Changes | None = None
        failure: StageFailedError | None = None
        try:
            async with self._open(ctx, target, config, known.folder) as terraform:
                changes = await self._plan(terraform, known.folder)
        except StageFailedError as error:
            failure = error
        last = known.answer
        pause = first = timedelta(seconds=config.drift_interval.total_seconds())
        if last is not None and last.key == key:
            is_same = last.changes == changes and str(last.error) == str(failure)
            pause = 2 * last.pause if is_same else pause
        pause = min(pause, max(LONGEST_PAUSE, first))
        return DriftAnswer(key=key, changes=changes, error=failure, until=now + pause, pause=pause)

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
        folder: Path,
    ) -> AsyncIterator[Terraform]:
        """Makes the program ready for a commit's files; only a few run at a time."""
        configuration = Configuration.open(ctx.source, target)
        settings = await configuration.settings(expand_nothing)
        version = configuration.options.terraform_version
        program = await self._programs.find(config.program, version, ctx.tools)
        await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        async with self._take_turn(config):
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


def to_sync_state(changes: Changes, commit: str) -> SyncState:
    """Returns whether what is there is what the commit says."""
    if changes.is_empty:
        return SyncState(status=SyncStatus.SYNCED)
    short = changes.summary
    head = f"To bring it to {commit[:7]}: {short}" if commit else short
    return SyncState(
        status=SyncStatus.OUT_OF_SYNC, short_reason=short, reason=f"{head}\n\n{changes.render()}"
    )


def _make_stamp(ctx: LiveContext, target: DeployTarget) -> bytes:
    """Returns what changes with the commit, the application file and the deploy target."""
    parts = (ctx.source.commit_hash, ctx.source.options, target.config)
    text = "\0".join(repr(each) for each in parts).encode()
    return hashlib.blake2b(text + ctx.source.config, digest_size=16).digest()
