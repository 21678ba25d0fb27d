# SPDX-License-Identifier: Apache-2.0
"""The stages that a plugin runs now: only about those it may ask, while they run."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pipecd_piped.programs.cancel_group import CancelGroup


class RunningStages:
    """The stages that one plugin executes now."""

    def __init__(self) -> None:
        self._stages: dict[tuple[str, str], list[CancelGroup]] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def enter(self, deployment_id: str, stage_id: str) -> Iterator[None]:
        """Register a stage as running while the block runs."""
        group = CancelGroup()
        groups = self._stages.setdefault((deployment_id, stage_id), [])
        groups.append(group)
        self._idle.clear()
        try:
            yield
        finally:
            group.end()
            groups.remove(group)
            if not groups:
                del self._stages[deployment_id, stage_id]
            if not self._stages:
                self._idle.set()

    @property
    def is_idle(self) -> bool:
        """Returns whether no stage runs in the plugin."""
        return self._idle.is_set()

    @property
    def is_alone(self) -> bool:
        """Whether exactly one stage runs."""
        return len(self._stages) == 1

    async def wait_idle(self) -> None:
        """Wait until no stage runs."""
        await self._idle.wait()

    def cancel_group(self, deployment_id: str, stage_id: str) -> CancelGroup | None:
        """Returns the cancel group of the stage's latest run, None when it does not run."""
        groups = self._stages.get((deployment_id, stage_id))
        return groups[-1] if groups else None

    def has_deployment(self, deployment_id: str) -> bool:
        """Whether a stage of this deployment runs."""
        return any(running == deployment_id for running, _ in self._stages)
