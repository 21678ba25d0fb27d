# SPDX-License-Identifier: Apache-2.0
"""Takes what git hosts send to hooks: who it is from, whether it may, and whom it concerns.

Whoever sends something without a good signature learns nothing: not whether there is such a hook,
nor of what kind it is. A good one is answered with a sentence for the person who looks at it on the
delivery page of the host.
"""

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.hooks import StoredHook, Use
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.githosts.pushes import PushEvent, read_push
from pipecd_controlplane.usecases.githosts.signatures import (
    MAX_AGE_SECONDS,
    SignedBody,
    find_secret,
    has_signature,
    is_stale,
)
from pipecd_controlplane.usecases.hooks import HookSettings
from pipecd_controlplane.usecases.repository_hints import (
    HintedAgents,
    RepositoryHints,
    match_pushed,
)
from pipecd_controlplane.usecases.shared_state import SharedState
from pipecd_model.errors import ConfigError, StateError
from pipecd_model.remotes import normalize_remote
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.api.repositories_pb2 import Hook

log = logger(__name__)

REFUSED_BURST: Final = 60
REFUSED_SECONDS: Final = 2.0
"""Deliveries with a wrong signature that one network may send to one hook, or to none."""

HOOK_BURST: Final = 300
HOOK_SECONDS: Final = 0.25
"""Deliveries with a good signature that one hook may get."""

NOTED_EVERY_SECONDS: Final = 60
"""How often it is written down when a hook was used last."""

LARGE_BYTES: Final = 128 * 1024
"""What is worked on in a thread, so that nobody else waits for it."""

T = TypeVar("T")

UNSIGNED: Final = (
    "refused: the request carries no signature. Set the secret of the hook at the git host"
)
STALE: Final = (
    f"refused: the time in the request is more than {MAX_AGE_SECONDS} seconds off. Check the clock"
    " of the sender, and sign each request anew"
)
REFUSED: Final = (
    "refused: there is no such hook here, or the signature is not made with its secret. Compare the"
    " address and the kind of the hook with `pipectl hook list`, or set a new secret from"
    " `pipectl hook rotate`"
)
BUSY: Final = "refused: too many deliveries. The agents look by themselves at their next poll"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A request to a hook, whose body was not read yet."""

    project_id: str
    hook_id: str
    headers: Mapping[str, str]
    """Their names are in small letters."""
    network: str
    """Where it comes from; what counts as one sender."""
    read_body: Callable[[bool], Awaitable[bytes]]
    """Reads the body, and keeps it or throws it away. Raises what the front responds with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResponse:
    """What the host is told."""

    status: int
    sentence: str
    outcome: str
    """For the metrics: one of few words."""
    project_id: str = ""
    """Empty unless the signature was good."""
    retry_after_seconds: int = 0


class HookDeliveries:
    """Verifies deliveries and hints the agents that they concern."""

    def __init__(
        self,
        stores: Stores,
        settings: HookSettings,
        hints: RepositoryHints,
        shared: SharedState,
        now: Now,
    ) -> None:
        self._stores = stores
        self._settings = settings
        self._hints = hints
        self._refused = shared.limit_attempts(
            "hooks-refused", burst=REFUSED_BURST, seconds=REFUSED_SECONDS
        )
        self._accepted = shared.limit_attempts(
            "hooks-accepted", burst=HOOK_BURST, seconds=HOOK_SECONDS
        )
        self._now = now
        # Signatures of hooks that do not exist are compared, too: it takes as long.
        self._no_secret = secrets.token_hex(32)

    async def receive(self, delivery: Delivery) -> HookResponse:
        """Handles one request and returns the response to it."""
        if not has_signature(delivery.headers):
            return HookResponse(status=401, sentence=UNSIGNED, outcome="unsigned")
        if is_stale(delivery.headers, self._now()):
            return HookResponse(status=401, sentence=STALE, outcome="stale")
        stored = await self._stores.hooks.find(delivery.hook_id)
        if stored is not None and stored.hook.project_id != delivery.project_id:
            stored = None
        # Each hook has an allowance of its own: many share the addresses of a host.
        attempt = f"{delivery.network} {'' if stored is None else stored.hook.id}"
        if wait := await self._refused.take(attempt):
            return _refuse_busy(wait)
        is_good, is_older = await self._verify(delivery, stored)
        if stored is None or not is_good:
            await self._note(stored, "last_refused_at")
            log.info("hook.refused", peer=delivery.network)
            return HookResponse(status=401, sentence=REFUSED, outcome="refused")
        await self._refused.give_back(attempt)
        return await self._take(delivery, stored, is_older=is_older)

    async def _verify(self, delivery: Delivery, stored: StoredHook | None) -> tuple[bool, bool]:
        """Returns whether the signature is good, and whether it is of the older secret."""
        body = await delivery.read_body(stored is not None)
        host, valid = Hook.GITHUB, [self._no_secret]
        if stored is not None:
            host = stored.hook.host
            try:
                valid = self._settings.open_secrets(stored)
            except StateError as error:
                log.warning("hook.secret_lost", hook=stored.hook.id, error=error.with_hint())
                return False, False
        signed = SignedBody(headers=delivery.headers, body=body)
        number = await _work_on(body, lambda: find_secret(signed, host, valid))
        return number >= 0, number > 0

    async def _take(
        self, delivery: Delivery, stored: StoredHook, *, is_older: bool
    ) -> HookResponse:
        hook = stored.hook
        if wait := await self._accepted.take(hook.id):
            return _refuse_busy(wait, hook.project_id)
        body = await delivery.read_body(True)
        try:
            event = await _work_on(body, lambda: read_push(delivery.headers, body, hook.host))
        except ConfigError as error:
            log.info("hook.unreadable", hook=hook.id, reason=str(error))
            return HookResponse(
                status=400,
                sentence=f"not understood: {error.with_hint()}",
                outcome="unreadable",
                project_id=hook.project_id,
            )
        response = await self._hint(hook, event)
        await self._note(stored, "last_accepted_at")
        if is_older:
            await self._note(stored, "older_secret_used_at")
        return response

    async def _hint(self, hook: Hook, event: PushEvent) -> HookResponse:
        if event.is_ping:
            return _respond(hook, 200, "the hook works: pushes will be passed on", "ping")
        if event.note or not event.branches:
            return _respond(hook, 202, f"nothing to do: {event.note}", "ignored")
        if hook.repository_url and normalize_remote(hook.repository_url) not in {
            normalize_remote(url) for url in event.repository.urls
        }:
            sentence = f"nothing to do: the hook is for {hook.repository_url} alone"
            return _respond(hook, 202, sentence, "ignored")
        hinted = await self._hints.send(
            hook.project_id, match_pushed(event.repository), event.branches
        )
        log.info(
            "hook.accepted",
            project_id=hook.project_id,
            hook=hook.id,
            repository=str(event.repository)[:200],
            branches=[branch.name for branch in event.branches[:5]],
            agents=len(hinted.repositories),
        )
        outcome = "accepted" if hinted.repositories else "unwatched"
        return _respond(hook, 202, _describe(event, hinted), outcome)

    async def _note(self, stored: StoredHook | None, use: Use) -> None:
        """Writes down when it was, at most once a minute, however many come."""
        if stored is None:
            return
        last: int = getattr(stored.hook, use)
        now = self._now()
        if now - last >= NOTED_EVERY_SECONDS:
            await self._stores.hooks.note(stored.hook.id, use, now)


async def _work_on(body: bytes, work: Callable[[], T]) -> T:
    """Returns what the work on a body returns."""
    return await asyncio.to_thread(work) if len(body) > LARGE_BYTES else work()


def _respond(hook: Hook, status: int, sentence: str, outcome: str) -> HookResponse:
    return HookResponse(
        status=status, sentence=sentence, outcome=outcome, project_id=hook.project_id
    )


def _refuse_busy(wait_seconds: float, project_id: str = "") -> HookResponse:
    return HookResponse(
        status=429,
        sentence=BUSY,
        outcome="limited",
        project_id=project_id,
        retry_after_seconds=math.ceil(wait_seconds),
    )


def _describe(event: PushEvent, hinted: HintedAgents) -> str:
    """Returns what became of a push, for the person at the host."""
    where = str(event.repository)[:500]
    if not hinted.repositories and hinted.other_branches:
        watched = ", ".join(hinted.other_branches[:5])
        return f"no agent watches that branch of {where}; watched: {watched}"
    if not hinted.repositories:
        return f"no agent watches {where}. Add it to `repositories` in the configuration of a piped"
    told = sorted({each.piped_name for each in hinted.repositories if each.told})
    away = sorted({each.piped_name for each in hinted.repositories if not each.told} - {*told})
    parts = []
    if told:
        parts.append(f"looking now: {', '.join(told[:20])}")
    if away:
        parts.append(f"not connected, will look by itself: {', '.join(away[:20])}")
    return "; ".join(parts)
