# SPDX-License-Identifier: Apache-2.0
"""Whether a stage is passed over: what its `skipOn` says about this deployment.

Asked for the forward stages of a pipeline only: a quick sync or a rollback has no `skipOn`.
"""

from collections.abc import Awaitable, Callable

from pipecd_model.config import SkipOnConfig
from pipecd_model.paths import matches


async def skip_reason(
    rule: SkipOnConfig, *, message: str, changed: Callable[[], Awaitable[list[str]]] | None
) -> str:
    """A sentence when the stage is to be skipped, else nothing.

    `changed` lists the files that this deployment changes; None on a first deployment, where nobody
    can say which files are new, so that the rule about paths does not count.
    """
    if rule.paths and changed is not None:
        files = await changed()
        if files and all(matches(rule.paths, file) for file in files):
            return "skipped: all changed files match skipOn.paths"
    for prefix in rule.commit_message_prefixes:
        if message.startswith(prefix):
            return f"skipped: the commit message starts with {prefix!r}"
    return ""
