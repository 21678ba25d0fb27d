# SPDX-License-Identifier: Apache-2.0
"""The hooks of a project: made, given new secrets and deleted by people.

A secret is told once and stored encrypted. After a rotation the one before is taken for a while, so
that the git host can be changed in peace.
"""

import secrets
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final
from urllib.parse import quote

from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.hooks import StoredHook
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import limits
from pipecd_controlplane.usecases.requester import Requester
from pipecd_controlplane.usecases.vault import Vault
from pipecd_model.errors import ConfigError, ConflictError, StateError
from pipecd_model.ids import new_id
from pipecd_model.remotes import normalize_remote
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.api import repositories_pb2 as pb

log = logger(__name__)

MOST_OF_PROJECT: Final = 100
DEFAULT_OVERLAP: Final = timedelta(days=1)
LONGEST_OVERLAP: Final = timedelta(days=30)
SECRET_BYTES: Final = 32
PATH: Final = "/hooks/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldHook:
    """A hook and its new secret, which is told once."""

    hook: pb.Hook
    secret: str


class HookSettings:
    """Makes, changes and reads hooks."""

    def __init__(self, stores: Stores, vault: Vault, now: Now) -> None:
        self._store = stores.hooks
        self._vault = vault
        self._now = now

    async def add(
        self,
        requester: Requester,
        *,
        name: str,
        host: pb.Hook.Host.ValueType,
        repository_url: str = "",
    ) -> ToldHook:
        """Makes a hook. A call that is repeated with its idempotency key is told the same."""
        limits.name("name", name)
        if host == pb.Hook.HOST_UNSPECIFIED:
            raise ConfigError("invalid request: host: it is not set")
        if repository_url and not normalize_remote(repository_url):
            raise ConfigError(
                "invalid request: repository_url: it is not the address of a repository",
                hint="e.g. https://host/owner/name",
            )
        wanted_id = requester.request_id("AddHook")
        at = self._now()
        hook = pb.Hook(
            id=wanted_id or new_id(),
            project_id=requester.project_id,
            name=name,
            host=host,
            repository_url=repository_url,
            creator=requester.name,
            created_at=at,
            updated_at=at,
            secret_created_at=at,
        )
        hook.path = f"{PATH}/{quote(hook.project_id, safe='')}/{hook.id}"
        secret = _make_secret()
        closed = self._vault.encrypt(secret, place=_place(hook))
        try:
            await self._store.add(
                StoredHook(hook=hook, secret=closed, secret_id=hook.id), most=MOST_OF_PROJECT
            )
        except (ConflictError, StateError):
            repeated = wanted_id and await self._find_made(requester.project_id, hook.id, hook.id)
            if not repeated:
                raise
            return repeated
        log.info("hook.added", project_id=hook.project_id, hook=hook.id, by=requester.name)
        return ToldHook(hook=hook, secret=secret)

    async def list_all(self, project_id: str) -> list[pb.Hook]:
        """Returns the hooks of a project by name, with what counts of them now."""
        stored = await self._store.list_by_project(project_id)
        return [self._show(each.hook) for each in stored]

    async def rotate(
        self, requester: Requester, hook_id: str, overlap: timedelta | None = None
    ) -> ToldHook:
        """Gives a hook a new secret; the one before is taken until the overlap is over."""
        kept = DEFAULT_OVERLAP if overlap is None else overlap
        if not timedelta() <= kept <= LONGEST_OVERLAP:
            raise ConfigError(
                f"invalid request: overlap: from nothing to {LONGEST_OVERLAP.days} days"
            )
        project_id = requester.project_id
        wanted_id = requester.request_id("RotateHook")
        if wanted_id and (made := await self._find_made(project_id, hook_id, wanted_id)):
            return made
        before = await self._store.get(project_id, hook_id)
        secret, at = _make_secret(), self._now()
        closed = self._vault.encrypt(secret, place=_place(before.hook))
        secret_id = wanted_id or new_id()

        def change(stored: StoredHook) -> StoredHook:
            if stored.secret_id == secret_id:
                return stored  # the same call, at the same moment
            hook = _copy(stored.hook)
            hook.updated_at = hook.secret_created_at = at
            hook.older_secret_until = at + int(kept.total_seconds()) if kept else 0
            return StoredHook(
                hook=hook,
                secret=closed,
                older_secret=stored.secret if kept else "",
                secret_id=secret_id,
            )

        after = await self._store.update(project_id, hook_id, change)
        log.info("hook.rotated", project_id=project_id, hook=hook_id, by=requester.name)
        return ToldHook(hook=self._show(after.hook), secret=self._open(after.hook, after.secret))

    async def revoke_older(self, requester: Requester, hook_id: str) -> None:
        """Ends the overlap of a rotation. Idempotent."""

        def change(stored: StoredHook) -> StoredHook:
            hook = _copy(stored.hook)
            hook.older_secret_until = 0
            return replace(stored, hook=hook, older_secret="")

        await self._store.update(requester.project_id, hook_id, change)
        log.info("hook.revoked", project_id=requester.project_id, hook=hook_id, by=requester.name)

    async def delete(self, requester: Requester, hook_id: str) -> None:
        await self._store.delete(requester.project_id, hook_id)
        log.info("hook.deleted", project_id=requester.project_id, hook=hook_id, by=requester.name)

    def open_secrets(self, stored: StoredHook) -> list[str]:
        """Returns the secrets that count now, the newest first. Raises StateError."""
        opened = [self._open(stored.hook, stored.secret)]
        if stored.older_secret and self._now() < stored.hook.older_secret_until:
            opened.append(self._open(stored.hook, stored.older_secret))
        return opened

    async def close_anew(self) -> int:
        """Re-encrypts with the current key what an older key has encrypted. Returns how many.

        A hook whose secret no key decrypts stays as it is, and refuses until it is rotated.
        """
        changed = 0
        for stored in await self._store.list_all():
            closed = [each for each in (stored.secret, stored.older_secret) if each]
            if all(self._vault.is_current(each) for each in closed):
                continue
            try:
                renewed = {each: self._close_anew(stored.hook, each) for each in closed}
            except StateError as error:
                log.warning("hook.secret_lost", hook=stored.hook.id, error=str(error))
                continue

            def change(now: StoredHook, renewed: dict[str, str] = renewed) -> StoredHook:
                return replace(
                    now,
                    secret=renewed.get(now.secret, now.secret),
                    older_secret=renewed.get(now.older_secret, now.older_secret),
                )

            await self._store.update(stored.hook.project_id, stored.hook.id, change)
            changed += 1
        return changed

    async def _find_made(self, project_id: str, hook_id: str, secret_id: str) -> ToldHook | None:
        """Returns a hook whose secret this request has made; None when it did not."""
        stored = await self._store.find(hook_id)
        if stored is None or stored.hook.project_id != project_id or stored.secret_id != secret_id:
            return None
        return ToldHook(hook=self._show(stored.hook), secret=self._open(stored.hook, stored.secret))

    def _show(self, hook: pb.Hook) -> pb.Hook:
        shown = _copy(hook)
        if shown.older_secret_until <= self._now():
            shown.older_secret_until = 0
        return shown

    def _open(self, hook: pb.Hook, closed: str) -> str:
        return self._vault.decrypt(closed, place=_place(hook))

    def _close_anew(self, hook: pb.Hook, closed: str) -> str:
        return self._vault.encrypt(self._open(hook, closed), place=_place(hook))


def _make_secret() -> str:
    return secrets.token_hex(SECRET_BYTES)


def _place(hook: pb.Hook) -> str:
    return f"project/{hook.project_id}/hook/{hook.id}"


def _copy(hook: pb.Hook) -> pb.Hook:
    copied = pb.Hook()
    copied.CopyFrom(hook)
    return copied
