# SPDX-License-Identifier: Apache-2.0
"""Every kind of caller of each project, and the judge of what they get.

A test of the matrix names, for each RPC, how a valid request for existing things is made. The rest
is generated: which callers must succeed follows from what the protos declare and from the roles.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipecd_controlplane.usecases import api_keys, pipeds, sessions
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.model import apikey_pb2, project_pb2
from pipecd_wire.options import rights_pb2
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.rpc import CallError, call, connect, stream
from pipecd_wire.rpc.handlers import Method, describe

Resource = project_pb2.ProjectRBACResource
Action = project_pb2.ProjectRBACPolicy

READ = {Action.GET, Action.LIST}
EVERYTHING = {Action.GET, Action.LIST, Action.CREATE, Action.UPDATE, Action.DELETE}
SEEN_BY_ALL = {
    Resource.PROJECT: {Action.GET},
    Resource.INSIGHT: {Action.GET},
    Resource.EVENT: {Action.LIST},
    Resource.DEPLOYMENT_CHAIN: READ,
    Resource.PIPED: READ,
}
# What each role may do, said a second time: the server's own table is what is tested.
MAY = {
    "Admin": dict.fromkeys(range(1, 9), EVERYTHING),
    "Editor": {
        **SEEN_BY_ALL,
        Resource.APPLICATION: EVERYTHING,
        Resource.DEPLOYMENT: EVERYTHING,
    },
    "Viewer": {**SEEN_BY_ALL, Resource.APPLICATION: READ, Resource.DEPLOYMENT: READ},
}


@dataclass
class Caller:
    """Somebody who calls, and what they show."""

    name: str
    kind: int | None
    """`pipecd.options.Caller`; None for who must not get in at all."""
    metadata: list[tuple[str, str]] = field(default_factory=list)
    writes: bool = False
    may: dict[Any, Any] = field(default_factory=dict)

    def allowed(self, method: Method) -> bool:
        if self.kind is None or self.kind not in method.callers:
            return False
        if self.kind == rights_pb2.API_KEY:
            return self.writes or method.role == rights_pb2.READ_ONLY
        if self.kind == rights_pb2.SESSION:
            assert method.rbac is not None
            wanted = self.may.get(method.rbac.resource, set())
            return bool(self.may) and (method.rbac.ignored or method.rbac.action in wanted)
        return True


Make = Callable[[Any], Awaitable[Any]]


@dataclass
class World:
    """Both projects, and the judge."""

    channel: Any
    ours: Any
    theirs: Any
    wrong: list[str] = field(default_factory=list)
    cells: int = 0

    async def judge(
        self, service: Any, entries: dict[str, Make], unimplemented: Iterable[str] = ()
    ) -> None:
        """Call every RPC of a service as everybody, with things of ours and as strangers."""
        methods = {each.name: describe(each) for each in service.methods}
        unimplemented = set(unimplemented)
        assert methods.keys() == entries.keys() | unimplemented, (
            "an RPC without an entry, or the reverse"
        )
        for name, make in entries.items():
            await self._judge(methods[name], make)
        assert not self.wrong, f"{len(self.wrong)} of {self.cells}:\n" + "\n".join(self.wrong)

    async def _judge(self, method: Method, make: Make) -> None:
        request = await make(self.ours)
        for caller in self.ours.callers:
            self.cells += 1
            if caller.allowed(method):
                # Each gets things of its own: the one before may have used them up.
                status, _ = await self.call(method, await make(self.ours), caller)
                self._expect(status == "OK", method, caller, "own", status)
            else:
                before = self.ours.fingerprint()
                status, _ = await self.call(method, request, caller)
                refused = status in {"UNAUTHENTICATED", "PERMISSION_DENIED"}
                known = caller.kind is not None and caller.kind in method.callers
                self._expect(refused, method, caller, "own", status)
                self._expect(
                    status == ("PERMISSION_DENIED" if known else "UNAUTHENTICATED"),
                    method,
                    caller,
                    "own, the kind of refusal",
                    status,
                )
                self._expect(before == self.ours.fingerprint(), method, caller, "changed", status)
        for caller in self.theirs.callers:
            self.cells += 1
            before = self.ours.fingerprint()
            status, answer = await self.call(method, request, caller)
            if not caller.allowed(method):
                refused = status in {"UNAUTHENTICATED", "PERMISSION_DENIED"}
                self._expect(refused, method, caller, "foreign", status)
            self._expect(status not in {"INTERNAL", "UNKNOWN"}, method, caller, "foreign", status)
            told = f"{self.ours.project_id}-".encode() in answer
            self._expect(not told, method, caller, "foreign, told ours", status)
            same = before == self.ours.fingerprint()
            self._expect(same, method, caller, "foreign, changed ours", status)

    async def call(self, method: Method, request: Any, caller: Caller) -> tuple[str, bytes]:
        make = self.channel.unary_stream if method.streams else self.channel.unary_unary
        rpc = make(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        try:
            if method.streams:
                reading = stream(rpc, request, deadline=20, metadata=caller.metadata)
                answer = await anext(reading)
                await reading.aclose()
            else:
                answer = await call(rpc, request, metadata=caller.metadata)
        except CallError as error:
            return error.status, b""
        return "OK", answer.SerializeToString()

    def _expect(self, right: bool, method: Method, caller: Caller, cell: str, status: str) -> None:
        if not right:
            self.wrong.append(f"{method.path} by {caller.name} ({cell}): {status}")


async def _callers(side: Any, auditor: Any) -> list[Caller]:
    token = [("authorization", f"PIPED-TOKEN {side.project_id},{side.piped_id},{side.piped_key}")]
    disabled_id, disabled_key = await pipeds.register(
        side.stores, side.registrar, name="off", description="", now=side.now
    )

    def disable(entity: Any) -> None:
        entity.disabled = True

    await side.stores.pipeds.update(side.project_id, disabled_id, disable)
    off = [("authorization", f"PIPED-TOKEN {side.project_id},{disabled_id},{disabled_key}")]
    read_only = await side.api_key()
    read_write = await side.api_key(role=apikey_pb2.APIKey.READ_WRITE)
    revoked = await side.api_key(role=apikey_pb2.APIKey.READ_WRITE)
    await api_keys.disable(side.stores, side.project_id, revoked.partition(".")[0])
    expired = await side.api_key(
        role=apikey_pb2.APIKey.READ_WRITE, now=lambda: side.now() - 100, expires_at=side.now() - 50
    )
    ended = await side.session(roles=("Admin",))
    await side.stores.sessions.end(side.project_id, ended.partition(".")[0])
    over = await sessions.start(
        side.stores,
        side.project_id,
        sessions.Identity(subject="x", via=access_pb2.Session.GITHUB, roles=("Admin",)),
        now=lambda: side.now() - 7200,
        hours=1,
    )
    admin = await side.session(roles=("Admin",))
    forged = admin.partition(".")[0] + ".forged"

    def cookie(value: str) -> list[tuple[str, str]]:
        return [("cookie", f"theme=dark; token={value}")]

    def key(value: str) -> list[tuple[str, str]]:
        return [("authorization", f"API-KEY {value}")]

    listed = [
        Caller("nobody", None),
        Caller("a cookie that is none", None, [("cookie", "nonsense; ;=;token")]),
        Caller("another scheme", None, [("authorization", "Basic eDp5")]),
        Caller("piped", rights_pb2.PIPED, token),
        Caller("disabled piped", None, off),
        Caller("wrong piped key", None, [(token[0][0], token[0][1] + "x")]),
        Caller("read-only key", rights_pb2.API_KEY, key(read_only)),
        Caller("read-write key", rights_pb2.API_KEY, key(read_write), writes=True),
        Caller("disabled key", None, key(revoked)),
        Caller("expired key", None, key(expired)),
        Caller("wrong key", None, key(read_write + "x")),
        Caller("ended session", None, cookie(ended)),
        Caller("expired session", None, cookie(over)),
        Caller("forged session", None, cookie(forged)),
        Caller("session without a role", rights_pb2.SESSION, cookie(await side.session())),
        Caller(
            "session of a role that is gone",
            rights_pb2.SESSION,
            cookie(await side.session(roles=("Gone",))),
        ),
        Caller(
            "custom role by group",
            rights_pb2.SESSION,
            cookie(await side.session(groups=("auditors",))),
            may=auditor,
        ),
    ]
    for role in ("Admin", "Editor", "Viewer"):
        shown = cookie(await side.session(roles=(role,)))
        listed.append(Caller(f"session {role}", rights_pb2.SESSION, shown, may=MAY[role]))
    return listed


@pytest.fixture
async def world(plane: ServedControlPlane, sides: Any, auditor: Any) -> World:
    for side in sides:
        side.callers = await _callers(side, auditor)
    channel = await plane.opened.enter_async_context(connect(plane.address))
    return World(channel=channel, ours=sides[0], theirs=sides[1])
