# SPDX-License-Identifier: Apache-2.0
"""How fast a server answers its callers while strangers flood it, and what the floods cost.

A real server that may have 1,024 descriptors. For each flood the slowest call of somebody with an
API key, on a connection that was there before and on new ones; memory and log that it has cost.
"""

import asyncio
import tempfile
from pathlib import Path

from report import Bar, info, report

from pipecd_test_support.besieged import MIB, besieged, endure, warm_up
from pipecd_test_support.floods import FLOODS

CALLS = 30


async def main() -> None:
    slowest = most_memory = most_log = 0.0
    with tempfile.TemporaryDirectory() as folder:
        async with besieged(Path(folder)) as server:
            await warm_up(server)
            for name in FLOODS:
                if name.startswith("tls-"):
                    continue  # for a server with TLS
                told = await endure(server, name, calls=CALLS)
                info(f"flood-{name}-call", max(told.known), "s")
                info(f"flood-{name}-new-call", max(told.new), "s")
                slowest = max(slowest, *told.known, *told.new)
                most_memory = max(most_memory, told.memory_growth)
                most_log = max(most_log, told.log_growth / MIB)
    report("floods-slowest-call", slowest, "s", Bar("<=", 1.0))
    report("floods-memory", most_memory, "MiB", Bar("<=", 64.0))
    report("floods-log", most_log, "MiB", Bar("<=", 1.0))


if __name__ == "__main__":
    asyncio.run(main())
