# SPDX-License-Identifier: Apache-2.0
"""API keys: what programs prove themselves with."""

from typing import Final

from sqlalchemy import bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.database import Value, View
from pipecd_controlplane.store.entities import Entities
from pipecd_wire.model import apikey_pb2

BY_ID: Final = select(schema.api_key.c.data).where(schema.api_key.c.id == bindparam("id"))
OF_PROJECT: Final = select(schema.api_key.c.data).where(
    schema.api_key.c.project_id == bindparam("project_id")
)


class ApiKeys(Entities[apikey_pb2.APIKey]):
    """The API keys; only their hashes are kept."""

    noun = "API key"
    kind = ChangeKind.API_KEY
    table = schema.api_key
    message = apikey_pb2.APIKey

    def columns(self, entity: apikey_pb2.APIKey) -> dict[str, Value]:
        return {}

    async def find_by_id(self, key_id: str) -> apikey_pb2.APIKey | None:
        """For the authenticator only: here the key says which project it is of, not the caller."""
        row = await self._database.one(BY_ID, id=key_id)
        return self._parse(row[0]) if row else None

    async def list_by_project(self, project_id: str) -> list[apikey_pb2.APIKey]:
        """Newest first."""

        async def work(view: View) -> list[apikey_pb2.APIKey]:
            rows = await view.all(OF_PROJECT, project_id=project_id)
            return [self._parse(row[0]) for row in rows]

        found = await self._database.read(work)
        return sorted(found, key=lambda key: (-key.created_at, key.id))
