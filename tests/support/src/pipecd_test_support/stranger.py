# SPDX-License-Identifier: Apache-2.0
"""Calls of another process, and for real of another user where the tests run as root.

Run as a program, it becomes that user once gRPC is loaded: another user may not be able to read
the checkout.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

NOBODY: Final = 65534
ME: Final = os.geteuid()
LIMIT: Final = 60.0

NEEDS_ROOT: Final = "only root can become another user"

UNKNOWN_METHODS: Final = (
    "/grpc.health.v1.Health/Check",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/nobody.knows.This/Method",
    "no path at all",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One call."""

    path: str
    body: str = ""
    """The bytes of the message, as hexadecimal digits."""
    metadata: list[list[str]] = field(default_factory=list)


def methods_of(*services: Any) -> list[str]:
    """The paths of all RPCs of these services."""
    return [f"/{each.full_name}/{name}" for each in services for name in each.methods_by_name]


def attempts(
    paths: Iterable[str], *proofs: tuple[str, str], bodies: Sequence[bytes] = (b"", b"\xff\xff")
) -> list[Attempt]:
    """Each path with each body, and with these pairs of metadata; by default no body is right."""
    metadata = [list(proof) for proof in proofs]
    return [
        Attempt(path=path, body=body.hex(), metadata=metadata) for path in paths for body in bodies
    ]


async def call_as(uid: int, address: str, calls: Sequence[Attempt]) -> list[str]:
    """Make the calls as a user; the status of each, as `NAME: sentence`."""
    given = json.dumps([asdict(each) for each in calls]).encode()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, str(uid), address),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LIMIT):
        answered, _ = await process.communicate(given)
    assert process.returncode == 0
    statuses: list[str] = json.loads(answered)
    assert len(statuses) == len(calls)
    return statuses


def main() -> None:
    uid, address = int(sys.argv[1]), sys.argv[2]
    calls = [Attempt(**each) for each in json.load(sys.stdin)]
    _call("127.0.0.1:1", calls[:1])  # whatever is loaded late is loaded now
    if uid != os.geteuid():
        os.chdir("/")
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        assert not os.access(Path("/root"), os.W_OK)
    json.dump(_call(address, calls), sys.stdout)


def _call(address: str, calls: Sequence[Attempt]) -> list[str]:
    import grpc  # noqa: PLC0415 - only for the process that calls

    options = [("grpc.enable_http_proxy", 0)]
    statuses = []
    with grpc.insecure_channel(address, options=options) as channel:
        for each in calls:
            # A stream of answers also reads a single one.
            method = channel.unary_stream(each.path, bytes, bytes)
            metadata = tuple((key, value) for key, value in each.metadata)
            answers = method(bytes.fromhex(each.body), metadata=metadata, timeout=20)
            try:
                next(answers, None)
                statuses.append("OK: ")
                answers.cancel()
            except grpc.RpcError as error:
                statuses.append(f"{error.code().name}: {error.details()}")
    return statuses


if __name__ == "__main__":
    main()
