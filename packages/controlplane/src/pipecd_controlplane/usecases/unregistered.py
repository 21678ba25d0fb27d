# SPDX-License-Identifier: Apache-2.0
"""Applications that pipeds found in git and nobody has registered yet."""

from typing import Final

from pipecd_controlplane.store.stores import Stores
from pipecd_wire.model import common_pb2

MOST: Final = 5000
"""Suggestions of one answer: nobody reads more, and a message has an end."""


async def listed(stores: Stores, project_id: str) -> list[common_pb2.ApplicationInfo]:
    """What the enabled pipeds of the project suggest, sorted by path.

    A piped that is disabled would not deploy them, and one that is gone suggests nothing.
    """
    enabled = {
        piped.id for piped in await stores.pipeds.of_project(project_id) if not piped.disabled
    }
    records = await stores.unregistered.of_project(project_id)
    found = []
    for piped_id in enabled & records.keys():
        for told in records[piped_id].message.applications:
            info = common_pb2.ApplicationInfo()
            info.CopyFrom(told)
            info.piped_id = piped_id
            found.append(info)
    found.sort(key=lambda info: (info.path, info.config_filename, info.piped_id))
    return found[:MOST]
