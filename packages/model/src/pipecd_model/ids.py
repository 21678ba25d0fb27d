# SPDX-License-Identifier: Apache-2.0
"""Identifiers that nobody else has."""

from uuid import uuid4


def new_id() -> str:
    """Make an id that nobody else has."""
    return str(uuid4())
