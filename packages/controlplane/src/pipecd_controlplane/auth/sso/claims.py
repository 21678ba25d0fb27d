# SPDX-License-Identifier: Apache-2.0
"""What a provider's claims say: a name, a picture, and groups."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeGuard

from pipecd_controlplane.usecases.sessions import UserIdentity
from pipecd_model.errors import UnauthenticatedError
from pipecd_wire.model import project_pb2
from pipecd_wire.pipecd.api import access_pb2

NAMES: Final = ("username", "preferred_username", "name", "cognito:username")
PICTURES: Final = ("picture", "avatar_url")
GROUPS: Final = ("groups", "roles", "cognito:groups", "custom:roles", "custom:groups")


def identity(client: project_pb2.ProjectSSOConfig.Oidc, claims: Mapping[str, Any]) -> UserIdentity:
    """Returns who the claims describe. Raises UnauthenticatedError when they hold no name."""
    named = [client.username_claim_key] if client.username_claim_key else NAMES
    subject = _first(claims, named)
    if not subject:
        raise UnauthenticatedError(
            "the provider did not say who signed in", hint=f"claims looked at: {', '.join(named)}"
        )
    pictured = [client.avatar_url_claim_key] if client.avatar_url_claim_key else PICTURES
    grouped = [client.roles_claim_key] if client.roles_claim_key else GROUPS
    return UserIdentity(
        subject=subject,
        via=access_pb2.Session.OIDC,
        avatar_url=_first(claims, pictured),
        # Names and no more, also `Admin`: which role a group has, only the project says. Who names
        # groups at the provider need not be who may give rights here.
        groups=tuple(dict.fromkeys(_texts(claims, grouped))),
    )


def _first(claims: Mapping[str, Any], names: Iterable[str]) -> str:
    for name in names:
        value = claims.get(name)
        if _is_text(value) and value:
            return value
    return ""


def _texts(claims: Mapping[str, Any], names: Iterable[str]) -> Iterable[str]:
    for name in names:
        value = claims.get(name)
        if isinstance(value, list):
            yield from (each for each in value if _is_text(each))
        elif _is_text(value):
            yield value


def _is_text(value: Any) -> TypeGuard[str]:
    """Returns whether it is text that can be encoded; a lone surrogate cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
