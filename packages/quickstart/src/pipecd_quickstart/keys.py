# SPDX-License-Identifier: Apache-2.0
"""Keys that a person presses in the terminal of a running quickstart."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

HELP: Final = "h"
LINK: Final = "l"
KEYS: Final = {b"h": HELP, b"H": HELP, b"?": HELP, b"l": LINK, b"L": LINK}


@asynccontextmanager
async def watch_keys(pressed: asyncio.Queue[str]) -> AsyncIterator[bool]:
    """Puts HELP or LINK into the queue whenever its key is pressed while the block runs.

    Yields whether there is a terminal to press it in. Keys count at once and are not shown; Ctrl-C
    and Ctrl-Z do what they always do.
    """
    if not _is_ours():
        yield False
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read() -> None:
        keys = b""
        with suppress(OSError):  # the terminal is gone
            keys = os.read(descriptor, 1024)
        if not keys:
            loop.remove_reader(descriptor)
        for wanted in dict.fromkeys(KEYS.get(bytes([key]), "") for key in keys):
            if wanted:
                pressed.put_nowait(wanted)

    tty.setcbreak(descriptor, termios.TCSANOW)
    loop.add_reader(descriptor, read)
    # A shell has set the terminal to its own mode meanwhile.
    loop.add_signal_handler(signal.SIGCONT, _set_mode_again, descriptor)
    try:
        yield True
    finally:
        loop.remove_signal_handler(signal.SIGCONT)
        loop.remove_reader(descriptor)
        if _is_ours():
            with suppress(termios.error):
                termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _is_ours() -> bool:
    """Returns whether this process may read the terminal: it has one, in the foreground."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def _set_mode_again(descriptor: int) -> None:
    if _is_ours():
        with suppress(termios.error):
            tty.setcbreak(descriptor, termios.TCSANOW)
