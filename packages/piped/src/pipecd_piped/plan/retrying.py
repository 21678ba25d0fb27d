# SPDX-License-Identifier: Apache-2.0
"""Retries of the calls that a deployment depends on: to its plugins, and to the control plane.

A plugin that is being fetched, started or restarted does not fail a deployment, nor does a control
plane that is unavailable: the deployment waits. Only a plugin in a crash loop ends the wait, with
an error that shows its last output. A deployment that waits here can be cancelled as usual.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

from pipecd_model.errors import PluginError, UnavailableError
from pipecd_piped.plan.protocols import PluginCalls
from pipecd_piped.plugins.errors import PluginLostError, PluginStoppingError
from pipecd_runtime.logs import logger

log = logger(__name__)

Answer = TypeVar("Answer")

CALL_AGAIN_SECONDS: Final = 1.0
"""Seconds between two calls to a control plane that is unavailable."""

LOOK_SECONDS: Final = 1.0
"""Seconds between two checks whether a plugin is in a crash loop."""

LOSSES: Final = 5
"""After this many losses of a plugin during the same calls, the calls are taken for the cause."""

LOSS_PAUSE_SECONDS: Final = 0.5
"""Seconds before the calls are repeated: the supervisor notices a loss later than the caller."""


async def retry_while_unavailable(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Retry a call while the control plane is unavailable; raises any other error."""
    while True:
        try:
            return await call()
        except UnavailableError as error:
            log.info("deployment.waits_for_controlplane", reason=str(error))
            await asyncio.sleep(CALL_AGAIN_SECONDS)


async def retry_on_plugin_loss(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Call plugins, and repeat all calls when one was lost meanwhile: they have no side effects.

    Raises PluginError after `LOSSES` attempts.
    """
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
    """Wait until every plugin has been ready or is in a crash loop, `limit` seconds at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit), asyncio.TaskGroup() as tasks:
            for plugin in plugins:
                if not plugin.was_ready:
                    tasks.create_task(_wait_ready_or_failed(plugin))


async def _wait_ready_or_failed(plugin: PluginCalls) -> None:
    with suppress(PluginError):
        await wait_ready(plugin)
