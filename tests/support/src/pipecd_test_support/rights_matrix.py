# SPDX-License-Identifier: Apache-2.0
"""Calls every RPC as every kind of caller of each project, and judges what they get.

A test of the matrix names, for each RPC, how a valid request for existing things is made. The rest
is generated: which callers must succeed follows from what the protos declare and from the roles.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from pipecd_controlplane.usecases import api_keys, pipeds, sessions
from pipecd_controlplane.usecases.gathered_audit import UNCHANGED
from pipecd_test_support.project_side import AUDITOR, Action, Caller, ProjectSide, Resource, Rights
from pipecd_test_support.rpc import StreamMethod, UnaryMethod
from pipecd_wire.model import apikey_pb2
from pipecd_wire.options import rights_pb2
from pipecd_wire.pipecd.api import access_pb2, api_pb2
from pipecd_wire.rpc import CallError, call, stream
from pipecd_wire.rpc.channel import Channel
from pipecd_wire.rpc.handlers import Method, describe

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
MAY: dict[str, Rights] = {
    "Admin": dict.fromkeys(Resource.ResourceType.values()[1:], EVERYTHING),
    "Editor": {
        **SEEN_BY_ALL,
        Resource.APPLICATION: EVERYTHING,
        Resource.DEPLOYMENT: EVERYTHING,
    },
    "Viewer": {**SEEN_BY_ALL, Resource.APPLICATION: READ, Resource.DEPLOYMENT: READ},
}


ACTOR_KINDS: dict[int | None, int] = {
    rights_pb2.API_KEY: api_pb2.AuditRecord.API_KEY,
    rights_pb2.SESSION: api_pb2.AuditRecord.PERSON,
    rights_pb2.PIPED: api_pb2.AuditRecord.PIPED,
}

MakeRequest = Callable[[ProjectSide], Awaitable[Message]]


def plain(request: Message) -> MakeRequest:
    """A request that names nothing."""

    async def make(_side: ProjectSide) -> Message:
        return request

    return make


def naming(thing: str, message: Callable[..., Message], named: str, **fields: Any) -> MakeRequest:
    """A request that names one thing, made anew: `thing` is how."""

    async def make(side: ProjectSide) -> Message:
        return message(**{named: await getattr(side, thing)()}, **fields)

    return make


@dataclass
class RightsMatrix:
    """Both projects, and the judge."""

    channel: Channel
    ours: ProjectSide
    theirs: ProjectSide
    wrong: list[str] = field(default_factory=list)
    cells: int = 0

    async def judge(
        self,
        service: ServiceDescriptor,
        entries: Mapping[str, MakeRequest],
        unimplemented: Iterable[str] = (),
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

    async def _judge(self, method: Method, make: MakeRequest) -> None:
        request = await make(self.ours)
        for caller in self.ours.callers:
            self.cells += 1
            if caller.is_allowed(method):
                # Each gets things of its own: the one before may have used them up.
                wanted = await make(self.ours)
                end = (await self.ours.read_audit_head()).sequence
                status, _ = await self.call(method, wanted, caller)
                self._expect(status == "OK", method, caller, "own", status)
                await self._judge_audit(method, caller, end, {"OK", UNCHANGED})
            else:
                before = await self.ours.fingerprint()
                end = (await self.ours.read_audit_head()).sequence
                status, _ = await self.call(method, request, caller)
                refused = status in {"UNAUTHENTICATED", "PERMISSION_DENIED"}
                known = caller.kind is not None and caller.kind in method.callers
                if known:
                    await self._judge_audit(method, caller, end, {"PERMISSION_DENIED"})
                self._expect(refused, method, caller, "own", status)
                self._expect(
                    status == ("PERMISSION_DENIED" if known else "UNAUTHENTICATED"),
                    method,
                    caller,
                    "own, the kind of refusal",
                    status,
                )
                same = before == await self.ours.fingerprint()
                self._expect(same, method, caller, "changed", status)
        for caller in self.theirs.callers:
            self.cells += 1
            before = await self.ours.fingerprint()
            status, answer = await self.call(method, request, caller)
            if not caller.is_allowed(method):
                refused = status in {"UNAUTHENTICATED", "PERMISSION_DENIED"}
                self._expect(refused, method, caller, "foreign", status)
            self._expect(status not in {"INTERNAL", "UNKNOWN"}, method, caller, "foreign", status)
            told = f"{self.ours.project_id}-".encode() in answer
            self._expect(not told, method, caller, "foreign, told ours", status)
            same = before == await self.ours.fingerprint()
            self._expect(same, method, caller, "foreign, changed ours", status)

    async def _judge_audit(
        self, method: Method, caller: Caller, end: int, outcomes: Collection[str]
    ) -> None:
        """Expect a record of what an audited RPC did, and of what was refused; else none."""
        found = [
            each
            for each in await self.ours.read_new_audit(end)
            if (each.service, each.action) == (method.service, method.name)
        ]
        is_wanted = method.is_audited or outcomes == {"PERMISSION_DENIED"}
        told = f"{len(found)} audit records: {[each.outcome for each in found]}"
        self._expect(bool(found) == is_wanted, method, caller, "audit", told)
        for each in found:
            right = each.outcome in outcomes and each.actor_kind == ACTOR_KINDS[caller.kind]
            self._expect(right, method, caller, "audit", str(each))
            self._expect(each.address == "127.0.0.1", method, caller, "audit, address", str(each))

    async def call(self, method: Method, request: Message, caller: Caller) -> tuple[str, bytes]:
        wire: Any = {
            "request_serializer": method.request.SerializeToString,
            "response_deserializer": method.response.FromString,
        }
        try:
            if method.streams:
                streaming: StreamMethod = self.channel.unary_stream(method.path, **wire)
                reading = stream(streaming, request, deadline=20, metadata=caller.metadata)
                answer = await anext(reading)
                await reading.aclose()
            else:
                unary: UnaryMethod = self.channel.unary_unary(method.path, **wire)
                answer = await call(unary, request, metadata=caller.metadata)
        except CallError as error:
            return error.status, b""
        return "OK", answer.SerializeToString()

    def _expect(self, right: bool, method: Method, caller: Caller, cell: str, status: str) -> None:
        if not right:
            self.wrong.append(f"{method.path} by {caller.name} ({cell}): {status}")


async def make_callers(side: ProjectSide) -> list[Caller]:
    """Returns one of every kind of caller of the project, and those who must not get in."""
    token = [("authorization", f"PIPED-TOKEN {side.project_id},{side.piped_id},{side.piped_key}")]
    disabled_id, disabled_key = await pipeds.register(
        side.stores, side.registrar, name="off", description="", now=side.now
    )

    await pipeds.set_disabled(side.stores, side.project_id, disabled_id, disabled=True)
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
        sessions.UserIdentity(subject="x", via=access_pb2.Session.GITHUB, roles=("Admin",)),
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
            may=AUDITOR,
        ),
    ]
    for role in ("Admin", "Editor", "Viewer"):
        shown = cookie(await side.session(roles=(role,)))
        own = () if role == "Viewer" else (rights_pb2.OPEN_RESOURCES,)
        listed.append(
            Caller(f"session {role}", rights_pb2.SESSION, shown, may=MAY[role], own_rights=own)
        )
    opener = cookie(await side.session(groups=("openers",)))
    listed.append(
        Caller(
            "custom role that only opens resources",
            rights_pb2.SESSION,
            opener,
            own_rights=(rights_pb2.OPEN_RESOURCES,),
        )
    )
    return listed
