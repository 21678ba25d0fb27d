# SPDX-License-Identifier: Apache-2.0
"""Who does what is no call of an API: people who sign in, the operator, the server itself."""

import getpass
from typing import Final

from pipecd_controlplane.store.auditing import AuditActor, AuditedCall, AuditSubject
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.pipecd.api.api_pb2 import AuditRecord

SIGN_IN: Final = "SignIn"
SIGN_OUT: Final = "SignOut"
ADD_PROJECT: Final = "AddProject"
CONFIGURE_PROJECT: Final = "ConfigureProject"
RESET_PASSWORD: Final = "ResetPassword"  # noqa: S105 - the name of an action

SERVER: Final = AuditActor(kind=AuditRecord.SYSTEM, name="pipecd server")


def describe_person(name: str, via: int, address: str) -> AuditActor:
    """Returns a person as the audit shows them: their name, and how they signed in."""
    known: dict[int, str] = {number: shown for shown, number in access_pb2.Session.Via.items()}
    return AuditActor(
        kind=AuditRecord.PERSON, name=name, id=known.get(via, "") if via else "", address=address
    )


def describe_operator() -> AuditActor:
    """Returns whoever runs a command on the server's machine, by the name of their user there."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = ""  # a user without a name
    return AuditActor(kind=AuditRecord.OPERATOR, name=user or "operator")


def describe_act(
    project_id: str, actor: AuditActor, action: str, at: int, *, subject: AuditSubject | None = None
) -> AuditedCall:
    """Returns what is done as the audit shows it; by itself it is about its project."""
    about = subject or AuditSubject(kind="project", id=project_id)
    return AuditedCall(project_id=project_id, actor=actor, action=action, at=at, subject=about)
