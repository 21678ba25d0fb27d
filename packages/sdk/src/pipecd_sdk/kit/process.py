# SPDX-License-Identifier: Apache-2.0
"""Arguments and starts of programs, for what `run` of the shell does not do.

Example:
    >>> from pipecd_sdk.kit.shell import run
    >>> asyncio.run(run(["echo", "--", word("-n")])).output
    '-n\\n'
"""

from pipecd_runtime.process import Argument, BadArgumentError, own, spawn_detached, valued, word

__all__ = ["Argument", "BadArgumentError", "own", "spawn_detached", "valued", "word"]
