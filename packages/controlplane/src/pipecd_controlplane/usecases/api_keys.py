# SPDX-License-Identifier: Apache-2.0
"""API keys: added and disabled by people, used by programs."""

from dataclasses import dataclass

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import limits
from pipecd_controlplane.usecases.keys import new_api_key, quick_hash
from pipecd_controlplane.usecases.pipeds import REDACTED
from pipecd_controlplane.usecases.shared_state import KeyUses
from pipecd_model.errors import ConfigError
from pipecd_model.ids import new_id
from pipecd_wire.model import apikey_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownKey:
    """A key as it is shown: without its hash, with its last use and its expiry."""

    key: apikey_pb2.APIKey
    expires_at: int


async def generate(
    stores: Stores,
    project_id: str,
    *,
    name: str,
    role: apikey_pb2.APIKey.Role.ValueType,
    creator: str,
    now: Now,
    expires_at: int = 0,
) -> str:
    """Adds a key. Returns it whole: only its hash is stored, so it cannot be read again."""
    limits.text("name", name, limits.NAME)
    at = now()
    if expires_at and expires_at <= at:
        raise ConfigError("invalid request: expires_at: it is over already")
    key_id = new_id()
    key = new_api_key(key_id)
    record = apikey_pb2.APIKey(
        id=key_id,
        name=name,
        key_hash=quick_hash(key),
        project_id=project_id,
        role=role,
        creator=creator,
        created_at=at,
        updated_at=at,
    )

    async def work(transaction: Transaction) -> None:
        await stores.api_keys.add_in(transaction, record)
        if expires_at:
            await stores.api_key_facts.add_in(
                transaction, project_id, key_id, expires_at=expires_at
            )

    await stores.database.write(work)
    return key


async def disable(stores: Stores, project_id: str, key_id: str) -> None:
    """Disables a key permanently: it is refused from the next call on. Idempotent."""

    def edit(key: apikey_pb2.APIKey) -> None:
        key.disabled = True

    await stores.api_keys.update(project_id, key_id, edit)


async def list_api_keys(
    stores: Stores, uses: KeyUses, project_id: str, *, enabled: bool | None = None
) -> list[ShownKey]:
    facts = await stores.api_key_facts.list_by_project(project_id)
    shown = []
    for key in await stores.api_keys.list_by_project(project_id):
        if enabled is not None and key.disabled is enabled:
            continue
        fact = facts.get(key.id)
        key.key_hash = REDACTED
        key.last_used_at = max(
            key.last_used_at,
            fact.last_used_at if fact else 0,
            await uses.find_last(project_id, key.id),
        )
        shown.append(ShownKey(key=key, expires_at=fact.expires_at if fact else 0))
    return shown
