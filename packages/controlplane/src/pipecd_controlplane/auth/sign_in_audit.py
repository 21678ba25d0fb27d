# SPDX-License-Identifier: Apache-2.0
"""Counts the sign-ins of a project that were refused, for its audit."""

from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.usecases.audit_actors import SIGN_IN, describe_act, describe_person
from pipecd_controlplane.usecases.gathered_audit import GatheredAudit
from pipecd_model.errors import UnauthenticatedError


class SignInAudit:
    """Nothing is written at once: that would take longer for a project that exists."""

    def __init__(self, gathered: GatheredAudit, now: Now) -> None:
        self._gathered = gathered
        self._now = now

    def note_failure(self, project_id: str, *, name: str, via: int, address: str) -> None:
        """Counts one attempt. `name` is one that is known to be an account's, or empty.

        What somebody has typed as their name may be their password.
        """
        actor = describe_person(name, via, address)
        call = describe_act(project_id, actor, SIGN_IN, self._now())
        self._gathered.note(call, UnauthenticatedError.status)
