# SPDX-License-Identifier: Apache-2.0
"""Threads share one heap once gRPC is used."""

import subprocess
import sys

import pytest

# `malloc_info` prints one <heap> per arena. Each thread must allocate while the others live.
COUNT_HEAPS = """
import asyncio, ctypes, threading
from pipecd_wire.rpc.loop import claim_loop

async def main():
    {claim}
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    together = threading.Barrier(4)

    def allocate():
        together.wait(30)
        libc.malloc(100)
        together.wait(30)

    threads = [threading.Thread(target=allocate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    libc.fopen.restype = ctypes.c_void_p
    stdout = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
    libc.malloc_info(0, stdout)
    libc.fclose(stdout)

asyncio.run(main())
"""


def heaps(claim: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", COUNT_HEAPS.format(claim=claim)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.count("<heap nr=")


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has arenas to limit")
def test_threads_share_one_heap_once_grpc_is_used() -> None:
    assert heaps("claim_loop()") == 1
    assert heaps("pass") > 1
