# SPDX-License-Identifier: Apache-2.0
"""API keys: the credentials of programs."""

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
    """The API keys; only their hashes are stored."""

    noun = "API key"
    kind = ChangeKind.API_KEY
    table = schema.api_key
    message = apikey_pb2.APIKey

    def columns(self, entity: apikey_pb2.APIKey) -> dict[str, Value]:
        return {}

    async def find_by_id(self, key_id: str) -> apikey_pb2.APIKey | None:
        """Returns a key whatever its project; None when there is none.

        For the authenticator only, which learns the project of the caller from the key.
        """
        row = await self._database.one(BY_ID, id=key_id)
        return self._parse(row[0]) if row else None

    async def list_by_project(self, project_id: str) -> list[apikey_pb2.APIKey]:
        """Returns the API keys of a project, newest first."""

        async def work(view: View) -> list[apikey_pb2.APIKey]:
            rows = await view.all(OF_PROJECT, project_id=project_id)
            return [self._parse(row[0]) for row in rows]

        found = await self._database.read(work)
        return sorted(found, key=lambda key: (-key.created_at, key.id))
