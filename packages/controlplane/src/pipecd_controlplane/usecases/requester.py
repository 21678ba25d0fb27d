# SPDX-License-Identifier: Apache-2.0
"""The requester: what a use case has to know of the person or program that calls."""

from collections.abc import Mapping
from typing import Protocol


class Requester(Protocol):
    """A person or a program of one project; see `auth.caller`."""

    @property
    def project_id(self) -> str: ...

    @property
    def name(self) -> str:
        """The name in records of who did what."""

    def request_id(self, method: str) -> str | None:
        """Returns the id for the thing that a call makes, the same when the call is repeated.

        None for a call without an idempotency key.
        """

    def check(self, noun: str, thing_id: str, labels: Mapping[str, str]) -> None:
        """Raises NotFoundError for a thing with labels that the requester's rights do not reach."""
