# SPDX-License-Identifier: Apache-2.0
"""Unique identifiers."""

from uuid import uuid4


def new_id() -> str:
    """Returns a new unique id, a random UUID."""
    return str(uuid4())
