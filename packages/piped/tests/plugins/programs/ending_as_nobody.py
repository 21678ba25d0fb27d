# SPDX-License-Identifier: Apache-2.0
"""Ends what is left of a plugin as a user who may not; its arguments: the data folder, the plugin.

Started as root. Writes the sentence with which that fails.
"""

import asyncio
import os
import sys
from pathlib import Path

from pipecd_piped.programs.errors import ProgramError
from pipecd_piped.programs.orphans import OrphanReaper

NOBODY = 65534


async def main() -> None:
    reaper = OrphanReaper(Path(sys.argv[1]))
    # Whatever has to be imported, is: the next user may not be allowed to read it.
    await reaper.end("nothing", others=sys.argv[2:])
    os.setgroups([])
    os.setresuid(NOBODY, NOBODY, NOBODY)
    try:
        await reaper.end(sys.argv[2], others=())
    except ProgramError as error:
        print(error.with_hint())  # noqa: T201 - the test reads it


asyncio.run(main())
