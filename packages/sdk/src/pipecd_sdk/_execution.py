# SPDX-License-Identifier: Apache-2.0
"""One stage, from its options to its result. Knows nothing of where the request came from."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from pipecd_sdk.config import OptionFaultsError, read
from pipecd_sdk.context import StageContext
from pipecd_sdk.plugin import StagePlugin
from pipecd_sdk.results import Outcome, PipedError, StageFailedError, StageResult, StageStatus
from pipecd_sdk.stages import StageDefinition

log = logging.getLogger(__name__)

LONGEST_LOGGED: Final = 64 * 1024
"""Characters of a reason that go to the log: a longer one is a whole output, logged already."""


async def execute(
    plugin: StagePlugin, definition: StageDefinition, options: bytes, ctx: StageContext
) -> StageResult:
    """Runs a stage's handler and returns its result, also for a failure; raises CancelledError."""
    try:
        outcome = await _call(plugin, definition, options, ctx)
    except StageFailedError as error:
        return _make_failure(ctx, error.reason())
    except OptionFaultsError as error:
        return _make_failure(ctx, str(error))
    except PipedError as error:
        return _make_failure(ctx, f"piped could not be asked: {error}")
    except Exception as error:
        # The plugin's bug: its author reads the operator log; the stage log says that the person
        # who deploys did not cause it. The error's text stays out: it was not written for people.
        log.exception("stage.bug", extra={"fields": _subject(ctx)})
        return _make_failure(
            ctx,
            f"{type(error).__name__} in the plugin; piped's log has the details",
        )
    if outcome is None:
        return StageResult(status=StageStatus.SUCCESS)
    return StageResult(status=outcome.value)


async def _call(
    plugin: StagePlugin, definition: StageDefinition, options: bytes, ctx: StageContext
) -> Outcome | None:
    handler: Callable[..., Awaitable[object]] = getattr(plugin, definition.attribute)
    if definition.config is None:
        outcome = await handler(ctx)
    else:
        path = ("stages", ctx.stage.index, "with")
        config, warnings = read(definition.config, options, path=path)
        for warning in warnings:
            ctx.log.info("%s", warning)
        outcome = await handler(ctx, config)
    if outcome is None or isinstance(outcome, Outcome):
        return outcome
    raise TypeError(f"{definition.name} returned {outcome!r}; return nothing, Exit or Skip")


def _make_failure(ctx: StageContext, reason: str) -> StageResult:
    ctx.log.error("%s", reason[:LONGEST_LOGGED])
    return StageResult(status=StageStatus.FAILURE, reason=reason)


def _subject(ctx: StageContext) -> dict[str, str]:
    return {
        "deployment_id": ctx.deployment.id,
        "stage_id": ctx.stage.id,
        "stage": ctx.stage.name,
    }
