# SPDX-License-Identifier: Apache-2.0
"""Decides by its `skipOn` whether a stage is skipped in this deployment.

Only forward stages of a pipeline have a `skipOn`; those of a quick sync or a rollback do not.
"""

from collections.abc import Awaitable, Callable

from pipecd_model.config import SkipOnConfig
from pipecd_model.paths import matches


async def skip_reason(
    rule: SkipOnConfig, *, message: str, changed: Callable[[], Awaitable[list[str]]] | None
) -> str:
    """Returns why the stage is skipped, or an empty string when it runs.

    `changed` lists the files that this deployment changes. It is None on a first deployment, which
    has no commit to compare with: then `paths` is ignored.
    """
    if rule.paths and changed is not None:
        files = await changed()
        if files and all(matches(rule.paths, file) for file in files):
            return "skipped: all changed files match skipOn.paths"
    for prefix in rule.commit_message_prefixes:
        if message.startswith(prefix):
            return f"skipped: the commit message starts with {prefix!r}"
    return ""
