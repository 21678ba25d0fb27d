# SPDX-License-Identifier: Apache-2.0
"""Retries of what a deployment cannot go on without: its plugins, and the control plane.

A plugin that is fetched, started or restarted is no fault of a deployment, nor is a control plane
that is away. Only a plugin that has failed so often in a row that the next try will hardly go
better ends the wait, and is named with its last words. Whoever waits here is stopped like any other
deployment that runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

from pipecd_model.errors import PluginError, UnavailableError
from pipecd_runtime.logs import logger
from piped.plan.protocols import PluginCalls
from piped.plugins.errors import PluginLostError, PluginStoppingError

log = logger(__name__)

Answer = TypeVar("Answer")

CALL_AGAIN_SECONDS: Final = 1.0
"""Between two calls of a control plane that is away, each of which takes a few seconds itself."""

LOOK_SECONDS: Final = 1.0
"""Between two looks at what became of a plugin."""

LOSSES: Final = 5
"""So often the same questions may cost a plugin its life; then it is their fault."""

LOSS_PAUSE_SECONDS: Final = 0.5
"""Before they are asked again: a loss is seen here before the supervisor knows of it."""


async def retry_while_unavailable(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Call the control plane until it answers or refuses."""
    while True:
        try:
            return await call()
        except UnavailableError as error:
            log.info("deployment.waits_for_controlplane", reason=str(error))
            await asyncio.sleep(CALL_AGAIN_SECONDS)


async def retry_on_plugin_loss(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask plugins, and ask all again when one was lost on the way: questions change nothing."""
    for _ in range(LOSSES):
        try:
            return await ask()
        except PluginStoppingError:
            raise
        except PluginLostError as error:
            lost = error
            log.warning("plan.plugin_lost", reason=str(error))
        await asyncio.sleep(LOSS_PAUSE_SECONDS)
    raise PluginError(f"{lost}; it was asked {LOSSES} times", hint=lost.hint) from lost


async def wait_ready(plugin: PluginCalls) -> None:
    """Wait until a plugin can be called; raises PluginError when it is in a crash loop."""
    while True:
        try:
            await plugin.wait_ready(LOOK_SECONDS)
        except PluginStoppingError:
            raise
        except PluginLostError as lost:
            if plugin.state.crash_loop:
                raise PluginError(str(lost), hint=lost.hint) from lost
        else:
            return


async def wait_for_stage_lists(plugins: Iterable[PluginCalls], limit: float) -> None:
    """Wait until all have said which stages they offer, as far as they will within the limit."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit), asyncio.TaskGroup() as tasks:
            for plugin in plugins:
                if not plugin.was_ready:
                    tasks.create_task(_wait_ready_or_failed(plugin))


async def _wait_ready_or_failed(plugin: PluginCalls) -> None:
    with suppress(PluginError):
        await wait_ready(plugin)
