# SPDX-License-Identifier: Apache-2.0
"""The template: a shim that Python has started already, and that is forked for each script.

It has read no job and knows no script. Each order on the socket that is its standard input brings
the two pipes of a new shim; when the plugin has closed the socket, or is gone, the template ends.
"""

import _signal as signal  # type: ignore[import-not-found]
import _socket  # not `socket`, which is most of a start
import os
import sys

from pipecd_runtime.shim import runner

BYTES_OF_A_NUMBER = 4


def serve() -> int:
    """Forks a shim for each order; returns an exit code, also in each shim, of its own."""
    # The kernel reaps the shims: what became of each one, it tells the plugin itself.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    orders = _socket.socket(fileno=0)
    while True:
        word, ancillary, _, _ = orders.recvmsg(1, _socket.CMSG_SPACE(2 * BYTES_OF_A_NUMBER))
        if not word:
            return 0
        pipes = _numbers(ancillary)
        try:
            is_shim = len(pipes) == 2 and os.fork() == 0
        except OSError:
            is_shim = False  # its pipes are closed: the plugin takes it for one that has died
        if is_shim:
            orders.detach()  # its number becomes that of the first pipe
            _become_shim(pipes)
            return runner.main()
        for number in pipes:
            os.close(number)


def _numbers(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    data = b"".join(
        each
        for level, kind, each in ancillary
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
    )
    return [
        int.from_bytes(data[at : at + BYTES_OF_A_NUMBER], sys.byteorder)
        for at in range(0, len(data), BYTES_OF_A_NUMBER)
    ]


def _become_shim(pipes: list[int]) -> None:
    """Leaves the template's session and all that the template has open."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for target, number in enumerate(pipes):
        os.dup2(number, target)
