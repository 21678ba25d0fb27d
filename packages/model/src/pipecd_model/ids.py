# SPDX-License-Identifier: Apache-2.0
"""Unique identifiers."""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid4, uuid5

_OURS: Final = UUID("0f6cc9a5-0b0c-4b8e-9d0a-7d3b0d6a6f52")


def new_id() -> str:
    """Returns a new unique id, a random UUID."""
    return str(uuid4())


def id_of_commit(application_id: str, last_deployment_id: str, commit: str) -> str:
    """Returns the id of the deployment that follows the last one because of a commit.

    The id is derived from its arguments: when a piped dies and is restarted, the same decision
    gives the same deployment.
    """
    return str(uuid5(_OURS, f"commit/{application_id}/{last_deployment_id}/{commit}"))


def id_of_repair(application_id: str, last_deployment_id: str, commit: str) -> str:
    """Returns the id of the deployment that repairs what the last one has left out of sync."""
    return str(uuid5(_OURS, f"repair/{application_id}/{last_deployment_id}/{commit}"))


def id_of_command(command_id: str) -> str:
    """Returns the id of the deployment of a command, derived from it: there is only one."""
    return str(uuid5(_OURS, f"command/{command_id}"))
