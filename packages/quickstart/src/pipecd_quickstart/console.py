# SPDX-License-Identifier: Apache-2.0
"""The build of the console in a checkout: beside everything else, so that nobody waits for it."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from pipecd_quickstart.folder import QuickstartFolder
from pipecd_quickstart.printing import say
from pipecd_runtime import process as child
from pipecd_runtime.process import word


async def build_console(builder: Path, folder: QuickstartFolder, url: str) -> None:
    """Runs the program that builds the console; says when it is there, or why it is not.

    It ends, with all that it has started, when this is cancelled.
    """
    with folder.console_log.open("wb") as sink:
        process = await child.start(
            (word(sys.executable), word(builder)),
            stdout=sink,
            stderr=sink,
            env=child.operator_environment(),
        )
    try:
        code = await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if code == 0:
        say(f"the console is ready: {url}", colour="green")
    else:
        say(f"the console could not be built; see {folder.console_log}", colour="yellow")
