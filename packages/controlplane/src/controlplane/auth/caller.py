# SPDX-License-Identifier: Apache-2.0
"""Who is calling: the first argument of every handler."""

from dataclasses import dataclass

from controlplane.usecases.commands import id_of_request
from controlplane.usecases.ownership import Agent

__all__ = ["Agent", "Program"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program, or a person with pipectl, that has shown an API key."""

    project_id: str
    key_id: str
    name: str
    """The key's name: what approver lists and records of who did what hold."""
    may_write: bool
    idempotency_key: str = ""

    def request_id(self, method: str) -> str | None:
        """The id for the thing a call makes: the same when the call is repeated."""
        return id_of_request(self.project_id, self.key_id, method, self.idempotency_key)
