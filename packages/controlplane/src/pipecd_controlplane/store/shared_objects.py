# SPDX-License-Identifier: Apache-2.0
"""Shared objects: bytes that a plugin keeps for an application, from deployment to deployment."""

from typing import Final

from sqlalchemy import ColumnElement, bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Database, Transaction

T: Final = schema.shared_object


def _here() -> "ColumnElement[bool]":
    return (
        (T.c.application_id == bindparam("this_application"))
        & (T.c.plugin_name == bindparam("this_plugin"))
        & (T.c.key == bindparam("this_key"))
        & (T.c.project_id == bindparam("this_project"))
    )


GET: Final = select(T.c.data).where(_here())


class SharedObjectRecords:
    """Opaque bytes by application, plugin and key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(
        self, project_id: str, application_id: str, plugin_name: str, key: str
    ) -> bytes | None:
        row = await self._database.one(
            GET,
            this_project=project_id,
            this_application=application_id,
            this_plugin=plugin_name,
            this_key=key,
        )
        return bytes(row[0]) if row else None

    async def put(
        self, project_id: str, application_id: str, plugin_name: str, key: str, data: bytes
    ) -> None:
        async def work(transaction: Transaction) -> None:
            await transaction.upsert(
                T,
                ("data",),
                project_id=project_id,
                application_id=application_id,
                plugin_name=plugin_name,
                key=key,
                data=data,
            )

        await self._database.write(work)
