# SPDX-License-Identifier: Apache-2.0
"""Identifiers: one type per noun, so that two of them cannot be swapped in a call."""

from typing import NewType
from uuid import uuid4

ProjectId = NewType("ProjectId", str)
PipedId = NewType("PipedId", str)
ApplicationId = NewType("ApplicationId", str)
DeploymentId = NewType("DeploymentId", str)
StageId = NewType("StageId", str)
CommandId = NewType("CommandId", str)


def new_id() -> str:
    """Make an id that nobody else has."""
    return str(uuid4())
