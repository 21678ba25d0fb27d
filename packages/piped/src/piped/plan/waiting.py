# SPDX-License-Identifier: Apache-2.0
"""Waiting for plugins that are being fetched, started, or started again.

A plugin that comes back is no fault of a deployment. Only one that has failed so often in a row
that the next try will hardly go better ends the wait, and is named with its last words.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

from pipecd_model.errors import PluginError
from piped.oplog import logger
from piped.plan.roles import Plugin
from piped.plugins.errors import PluginLostError, PluginStoppingError

log = logger(__name__)

Answer = TypeVar("Answer")

LOOK: Final = 1.0
"""Seconds between two looks at what became of a plugin."""

LOSSES: Final = 5
"""So often the same questions may cost a plugin its life; then it is their fault."""

PAUSE: Final = 0.5
"""Seconds before they are asked again: a loss is seen here before the supervisor knows of it."""


async def until_ready(plugin: Plugin) -> None:
    """Wait until a plugin can be called; PluginError when it is in a crash loop."""
    while True:
        try:
            await plugin.ready(LOOK)
        except PluginStoppingError:
            raise
        except PluginLostError as lost:
            if plugin.state.crash_loop:
                raise PluginError(str(lost), hint=lost.hint) from lost
        else:
            return


async def until_known(plugins: Iterable[Plugin], limit: float) -> None:
    """Wait until all have said what they offer, as far as they will within the limit."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit), asyncio.TaskGroup() as tasks:
            for plugin in plugins:
                if not plugin.was_ready:
                    tasks.create_task(_once_ready(plugin))


async def through_losses(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask plugins, and ask all again when one was lost on the way: questions change nothing."""
    for _ in range(LOSSES):
        try:
            return await ask()
        except PluginStoppingError:
            raise
        except PluginLostError as error:
            lost = error
            log.warning("plan.plugin_lost", reason=str(error))
        await asyncio.sleep(PAUSE)
    raise PluginError(f"{lost}; it was asked {LOSSES} times", hint=lost.hint) from lost


async def _once_ready(plugin: Plugin) -> None:
    with suppress(PluginError):
        await until_ready(plugin)
