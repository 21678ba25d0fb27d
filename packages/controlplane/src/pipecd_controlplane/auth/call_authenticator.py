# SPDX-License-Identifier: Apache-2.0
"""Authenticates the caller of every RPC, and checks that the method may be called by it.

Nothing about a credential is ever logged or repeated. An unknown piped and a wrong key get the same
error: only a caller that holds the key learns more.
"""

from collections.abc import Callable
from typing import Final

from pipecd_controlplane.auth import calls
from pipecd_controlplane.auth.addresses import network
from pipecd_controlplane.auth.caller import Agent, ApiKeyCaller, Person, RefusedCallerError
from pipecd_controlplane.auth.session_authenticator import SessionAuthenticator
from pipecd_controlplane.auth.verify import Verifier
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.attempts import TooManyAttemptsError
from pipecd_controlplane.usecases.leases import Leases
from pipecd_controlplane.usecases.shared_state import SharedState
from pipecd_model.errors import ConfigError, UnauthenticatedError
from pipecd_runtime.logs import logger
from pipecd_wire.headers import (
    API_KEY_SCHEME,
    AUTHORIZATION,
    BEARER_SCHEME,
    IDEMPOTENCY_KEY_HEADER,
    LEASE_EPOCH_HEADER,
    PIPED_TOKEN_SCHEME,
)
from pipecd_wire.model import apikey_pb2
from pipecd_wire.options import rights_pb2
from pipecd_wire.rpc import PEER, Metadata, Method

log = logger(__name__)

TRACES: Final = "opentelemetry.proto.collector.trace.v1.TraceService"

LONGEST_IDEMPOTENCY_KEY: Final = 200


NoteRefusal = Callable[[Method, ApiKeyCaller | Person], None]


class CallAuthenticator:
    """Authenticates callers; its `admit` runs before every handler."""

    def __init__(
        self,
        stores: Stores,
        leases: Leases,
        shared: SharedState,
        now: Now,
        note_refusal: NoteRefusal | None = None,
    ) -> None:
        """`note_refusal` is called for each known caller that has no right to what it asks for."""
        self._note_refusal = note_refusal
        self._stores = stores
        self._leases = leases
        self._uses = shared.key_uses
        self._now = now
        self._sessions = SessionAuthenticator(stores, now)
        self._verifier = Verifier()
        # Comparing a key takes CPU time: no caller may make us do it without a limit.
        self._attempts = shared.limit_attempts("keys", burst=50, seconds=2)

    async def admit(self, method: Method, metadata: Metadata) -> Agent | ApiKeyCaller | Person:
        """Returns the caller of an RPC, once it is authenticated and authorized.

        Raises UnauthenticatedError or DeniedError; StateError for a lease that is over.
        """
        call = calls.begin(metadata)
        try:
            caller = await self._admit(method, metadata, again=False)
        except RefusedCallerError as error:
            if self._note_refusal is not None:
                self._note_refusal(method, error.caller)
            raise
        call.project_id, call.caller = caller.project_id, calls.name(caller)
        return caller

    async def admit_again(
        self, method: Method, metadata: Metadata
    ) -> Agent | ApiKeyCaller | Person:
        """Authenticates the caller of a running call again. Raises as `admit` does.

        It counts neither as a new call nor as a new attempt to guess a key.
        """
        return await self._admit(method, metadata, again=True)

    async def _admit(
        self, method: Method, metadata: Metadata, *, again: bool
    ) -> Agent | ApiKeyCaller | Person:
        kind, _, credential = metadata.get(AUTHORIZATION, "").partition(" ")
        if kind == BEARER_SCHEME and method.service == TRACES:
            kind = PIPED_TOKEN_SCHEME  # what an exporter of traces can send
        if kind == PIPED_TOKEN_SCHEME and rights_pb2.PIPED in method.callers:
            agent = await self._piped(credential, metadata, again=again)
            if not method.without_lease:
                await self._leases.check_epoch(agent)
            return agent
        if kind == API_KEY_SCHEME and rights_pb2.API_KEY in method.callers:
            program = await self._program(credential, metadata, again=again)
            if method.role == rights_pb2.READ_WRITE and not program.may_write:
                raise RefusedCallerError(f"the API key {program.name!r} may only read", program)
            return program
        is_session = kind not in {PIPED_TOKEN_SCHEME, API_KEY_SCHEME}
        if is_session and rights_pb2.SESSION in method.callers:
            return await self._sessions.admit(
                method, metadata.get("cookie", ""), _idempotency_key(metadata)
            )
        raise UnauthenticatedError(f"{method.name} needs {_describe_credentials(method)}")

    async def project_of_key(self, authorization: str, peer: str) -> str:
        """Returns the project of an API key shown outside of an RPC. Raises as `admit` does."""
        kind, _, credential = authorization.partition(" ")
        if kind not in {API_KEY_SCHEME, BEARER_SCHEME}:
            raise UnauthenticatedError("an API key is needed", hint="Authorization: Bearer KEY")
        return (await self._program(credential, {PEER: peer}, again=False)).project_id

    async def _piped(self, credential: str, metadata: Metadata, *, again: bool) -> Agent:
        project_id, piped_id, key = _parts(credential, ",", 3)
        piped = await self._stores.pipeds.find(project_id, piped_id)
        peer = metadata.get(PEER, "")
        hashes = [each.hash for each in piped.keys] if piped else []
        who = "" if again else f"{piped_id}\n{network(peer)}"
        if piped is None or not await self._any_matches(key, hashes, who):
            log.info("authenticator.piped_refused", piped_id=piped_id[:64])
            raise UnauthenticatedError(
                "unknown piped or wrong piped key",
                hint="check projectID, pipedID and the key in the piped config",
            )
        if piped.disabled:
            raise UnauthenticatedError(
                f"the piped {piped.name!r} is disabled", hint="enable it in the control plane"
            )
        return Agent(
            project_id=project_id,
            piped_id=piped_id,
            peer=peer,
            lease_epoch=_epoch(metadata.get(LEASE_EPOCH_HEADER)),
        )

    async def _program(self, credential: str, metadata: Metadata, *, again: bool) -> ApiKeyCaller:
        key_id, _secret = _parts(credential, ".", 2)
        key = await self._stores.api_keys.find_by_id(key_id)
        peer = metadata.get(PEER, "")
        who = "" if again else f"{key_id}\n{network(peer)}"
        if key is None or not await self._any_matches(credential, [key.key_hash], who):
            raise UnauthenticatedError("unknown or wrong API key")
        if key.disabled:
            raise UnauthenticatedError(f"the API key {key.name!r} is disabled")
        fact = await self._stores.api_key_facts.get(key_id)
        now = self._now()
        if fact.expires_at and fact.expires_at <= now:
            raise UnauthenticatedError(f"the API key {key.name!r} has expired")
        if not again:
            await self._uses.note(key.project_id, key.id, now)
        return ApiKeyCaller(
            project_id=key.project_id,
            key_id=key.id,
            name=key.name,
            may_write=key.role == apikey_pb2.APIKey.READ_WRITE,
            expires_at=fact.expires_at,
            idempotency_key=_idempotency_key(metadata),
        )

    async def _any_matches(self, key: str, hashes: list[str], who: str) -> bool:
        """Returns whether the key matches one of the hashes.

        Raises TooManyAttemptsError when `who` has shown too many keys that were not compared
        before. Without `who` no attempt is counted: the key was accepted before.
        """
        for hashed in hashes:
            new = not self._verifier.knows(key, hashed)
            if who and new and await self._attempts.take(who):
                raise TooManyAttemptsError("too many different keys", hint="try again later")
            if await self._verifier.matches(key, hashed):
                return True
        return False


def _idempotency_key(metadata: Metadata) -> str:
    return metadata.get(IDEMPOTENCY_KEY_HEADER, "")[:LONGEST_IDEMPOTENCY_KEY]


def _epoch(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ConfigError(f"invalid metadata: {LEASE_EPOCH_HEADER}: {text[:40]!r} is not a number")
    return int(text)


def _parts(credential: str, separator: str, count: int) -> list[str]:
    parts = credential.split(separator)
    if len(parts) != count or not all(parts) or " " in credential:
        raise UnauthenticatedError("the credential is malformed")
    return parts


def _describe_credentials(method: Method) -> str:
    names = {
        rights_pb2.PIPED: "a piped token",
        rights_pb2.API_KEY: "an API key",
        rights_pb2.SESSION: "a session",
    }
    wanted = [name for caller, name in names.items() if caller in method.callers]
    return " or ".join(wanted) or "a caller of another kind"
