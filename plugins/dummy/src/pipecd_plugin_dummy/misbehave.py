# SPDX-License-Identifier: Apache-2.0
"""What a well-behaved plugin never does."""

import os
import signal
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Final

from pipecd_plugin_dummy.config import Behaviour, Flood
from pipecd_sdk import Metadata, StageLog

EXITS: Final = "exits"
"""How often the process has ended itself in this stage."""
_NO_FRAME: Final = b"\x00\x00\x05\x04\x00\x00\x00\x00\x01"
"""Settings of a wrong length for a stream: noise alone may look like the begin of a large frame."""


async def flood(what: Flood, log: StageLog) -> None:
    """Writes very many lines to stdout, stderr and the stage log."""
    line = "x" * max(what.line - 1, 1) + "\n"
    for stream, size in ((sys.stdout, what.stdout), (sys.stderr, what.stderr)):
        for _ in range(-(-size // len(line))):
            stream.write(line)
        stream.flush()
    for number in range(what.log_lines):
        await log.write(f"{number} {line}")


def hang(seconds: float) -> None:
    """Stop the whole process: the loop runs nothing, not even the handler of a signal."""
    if seconds:
        time.sleep(seconds)


async def end_process(behaviour: Behaviour, metadata: Metadata) -> None:
    """Ends the process with `os._exit` or a signal, at most `exit_times` times per stage."""
    if behaviour.exit is None and not behaviour.signal:
        return
    exits = int(await metadata.get(EXITS) or 0)
    if exits >= behaviour.exit_times:
        return
    await metadata.put(EXITS, str(exits + 1))
    if behaviour.signal:
        if behaviour.signal not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(behaviour.signal, signal.SIG_DFL)
        os.kill(os.getpid(), behaviour.signal)
    else:
        os._exit(behaviour.exit or 0)


def send_garbage(size: int) -> int:
    """Writes noise into every connection of the process; returns to how many."""
    sent = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            number = int(entry.name)
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as connection:
                if connection.type != socket.SOCK_STREAM or connection.family not in {
                    socket.AF_INET,
                    socket.AF_INET6,
                }:
                    continue
                connection.getpeername()
                connection.send(_NO_FRAME + os.urandom(size))
                sent += 1
        except OSError:
            continue  # closed meanwhile, not connected, or full
    return sent
