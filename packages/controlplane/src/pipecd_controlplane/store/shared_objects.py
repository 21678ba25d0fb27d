# SPDX-License-Identifier: Apache-2.0
"""Shared objects: bytes that a plugin keeps for an application, from deployment to deployment."""

from typing import Final

from sqlalchemy import ColumnElement, bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.blobs.blob_store import BlobStore
from pipecd_controlplane.store.database import Database, Transaction
from pipecd_controlplane.store.sealed_values import (
    NO_OBJECT,
    SealedValues,
    StoredValue,
    read_value,
)

T: Final = schema.shared_object


def _here() -> "ColumnElement[bool]":
    return (
        (T.c.application_id == bindparam("this_application"))
        & (T.c.plugin_name == bindparam("this_plugin"))
        & (T.c.key == bindparam("this_key"))
        & (T.c.project_id == bindparam("this_project"))
    )


GET: Final = select(T.c.data, *(T.c[name] for name in NO_OBJECT)).where(_here())


class SharedObjectRecords:
    """Opaque bytes by application, plugin and key. Large ones may be objects of the blob store."""

    def __init__(self, database: Database, blobs: BlobStore | None = None) -> None:
        self._database = database
        self._sealed = SealedValues(blobs)

    async def find(
        self, project_id: str, application_id: str, plugin_name: str, key: str
    ) -> bytes | None:
        """Returns the bytes, wherever they are; None when there are none.

        Raises LostValueError when their object is missing or damaged.
        """

        async def read() -> StoredValue | None:
            row = await self._database.one(
                GET,
                this_project=project_id,
                this_application=application_id,
                this_plugin=plugin_name,
                this_key=key,
            )
            return None if row is None else read_value(*row)

        noun = f"the shared object {key!r} of the plugin {plugin_name!r} for {application_id!r}"
        found = await self._sealed.open(noun, read)
        return None if found is None else bytes(found.data)

    async def put(
        self, project_id: str, application_id: str, plugin_name: str, key: str, data: bytes
    ) -> None:
        async def work(transaction: Transaction) -> None:
            await transaction.upsert(
                T,
                ("data", *NO_OBJECT),
                project_id=project_id,
                application_id=application_id,
                plugin_name=plugin_name,
                key=key,
                data=data,
                **NO_OBJECT,
            )

        await self._database.write(work)
