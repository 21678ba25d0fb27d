# SPDX-License-Identifier: Apache-2.0
"""Waits until AWS has made a change ready: with a deadline, and lines that tell how it goes."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from pipecd_aws import wait_until
from pipecd_plugin_lambda.stages.run import FunctionRun
from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.text import make_printable_line

PAUSE: Final = timedelta(seconds=2)
TELL_AFTER: Final = timedelta(seconds=20)


class FunctionFailedError(StageFailedError):
    """AWS says that a change of the function has failed."""


async def wait_function(run: FunctionRun, version: str = "") -> Mapping[str, Any]:
    """Waits until the function, or a version of it, can be called; returns its configuration.

    Raises FunctionFailedError when AWS says so, StageFailedError when the deadline has passed.
    """
    what = f"version {version}" if version else "the function"
    seen: Mapping[str, Any] = {}

    async def look() -> str:
        nonlocal seen
        seen = await run.api.get_configuration(version)
        return judge_configuration(seen, what)

    await _wait(run, look, what)
    return seen


def judge_configuration(configuration: Mapping[str, Any], what: str) -> str:
    """Returns what is still under way, empty for nothing. Raises FunctionFailedError."""
    for key in ("State", "LastUpdateStatus"):
        state = str(configuration.get(key) or "")
        reason = explain_state(configuration, key)
        if state == "Failed":
            raise FunctionFailedError(
                f"AWS could not make {what} ready: {reason or 'no reason is given'}"
            )
        if state in {"Pending", "InProgress"}:
            return f"{what} is {'being updated' if key == 'LastUpdateStatus' else 'pending'}" + (
                f" ({reason})" if reason else ""
            )
    return ""


def explain_state(configuration: Mapping[str, Any], key: str) -> str:
    """Returns the reason that AWS gives for a state, with its code."""
    reason = str(configuration.get(f"{key}Reason") or "")
    code = str(configuration.get(f"{key}ReasonCode") or "")
    return make_printable_line(f"{reason} ({code})" if reason and code else reason or code)[:1000]


async def wait_provisioned(run: FunctionRun, wanted: int) -> None:
    """Waits until what is kept ready behind the alias is ready. Raises StageFailedError."""
    what = f"provisioned concurrency of {run.alias}"

    async def look() -> str:
        seen = await run.api.get_provisioned(run.alias)
        status = str((seen or {}).get("Status") or "")
        if status == "FAILED":
            reason = make_printable_line(str((seen or {}).get("StatusReason") or ""))[:1000]
            raise StageFailedError(f"AWS could not allocate the {what}: {reason or 'no reason'}")
        if status == "READY":
            return ""
        ready = (seen or {}).get("AvailableProvisionedConcurrentExecutions", 0)
        return f"{what}: {ready} of {wanted} ready"

    await _wait(run, look, what)


async def _wait(run: FunctionRun, look: Callable[[], Awaitable[str]], what: str) -> None:
    """Waits until `look` returns nothing that is under way."""
    clock = run.ctx.clock
    timeout = run.manifest.options.input.update_timeout
    deadline = clock.now() + timeout
    told_at = clock.now() - TELL_AFTER
    pending = ""

    async def is_ready() -> bool:
        nonlocal told_at, pending
        pending = await look()
        if not pending:
            return True
        if clock.now() - told_at >= TELL_AFTER:
            told_at = clock.now()
            run.log.info("waiting: %s", pending)
        return False

    if not await wait_until(is_ready, clock=clock, deadline=deadline, pause=PAUSE):
        raise StageFailedError(
            f"{what} was not ready within {timeout}: {pending}",
            hint="a longer time can be given with input.updateTimeout",
        )
