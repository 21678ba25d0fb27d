# SPDX-License-Identifier: Apache-2.0
"""Who is calling: the first argument of every handler."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipecd_controlplane.usecases.commands import id_of_request
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.roles import Grant
from pipecd_model.errors import DeniedError, NotFoundError

__all__ = ["Agent", "ApiKeyCaller", "Person", "RefusedCallerError", "User"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyCaller:
    """A program that has shown an API key, or a person with it."""

    project_id: str
    key_id: str
    name: str
    """The key's name: what approver lists and records of who did what hold."""
    may_write: bool
    expires_at: int = 0
    """When the key ends by itself; 0 is never."""
    idempotency_key: str = ""

    def request_id(self, method: str) -> str | None:
        """Returns the id for what a call makes: the same when the call is repeated."""
        return id_of_request(self.project_id, self.key_id, method, self.idempotency_key)

    @property
    def commander(self) -> str:
        """The name in sync commands: upstream's control plane writes the key's id there."""
        return self.key_id

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Returns True: no right of a key is limited to labels. For people see `Person.covers`."""
        return True

    def check(self, noun: str, thing_id: str, labels: Mapping[str, str]) -> None:
        """Allows everything: a key reaches all of its project. For people see `Person.check`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person with a browser or with pipectl, signed in to one project."""

    project_id: str
    session_id: str
    name: str
    via: int
    """How they signed in. The same name, signed in another way, is another person."""
    avatar_url: str = ""
    grant: Grant = field(default_factory=Grant)
    """What the call is allowed for: everything of the project, or what has certain labels."""
    may_change_project: bool = False
    expires_at: int = 0
    """When the session ends by itself."""
    idempotency_key: str = ""

    def request_id(self, method: str) -> str | None:
        return id_of_request(self.project_id, f"user:{self.name}", method, self.idempotency_key)

    @property
    def commander(self) -> str:
        """The name in sync commands."""
        return self.name

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Returns whether the right of this call reaches a thing with these labels."""
        return self.grant.covers(labels)

    def check(self, noun: str, thing_id: str, labels: Mapping[str, str]) -> None:
        """Raises NotFoundError for a thing that their roles do not reach."""
        if not self.covers(labels):
            raise NotFoundError(f"there is no {noun} {thing_id!r}")


class RefusedCallerError(DeniedError):
    """A caller that is known asks for what it has no right to."""

    def __init__(self, message: str, caller: ApiKeyCaller | Person) -> None:
        super().__init__(message)
        self.caller = caller


User = ApiKeyCaller | Person
"""A caller that acts for people: most of our own API accepts either."""
