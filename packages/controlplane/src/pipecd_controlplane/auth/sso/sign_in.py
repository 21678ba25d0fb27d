# SPDX-License-Identifier: Apache-2.0
"""Single sign-on: begun in a browser, finished in the same one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from pipecd_controlplane.auth.sign_in_audit import SignInAudit
from pipecd_controlplane.auth.sso.github import GitHub
from pipecd_controlplane.auth.sso.journey import Journey, Journeys
from pipecd_controlplane.auth.sso.oidc import Oidc
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import roles
from pipecd_controlplane.usecases.sessions import DEFAULT_HOURS, UserIdentity
from pipecd_controlplane.usecases.sso_settings import SsoSettings
from pipecd_model.errors import StateError, UnauthenticatedError, UnavailableError
from pipecd_runtime.logs import logger
from pipecd_wire.model import project_pb2
from pipecd_wire.pipecd.api import access_pb2

log = logger(__name__)

PROVIDER_TIMEOUT_SECONDS: Final = 10.0

VIAS: Final[Mapping[int, int]] = {
    project_pb2.ProjectSSOConfig.GITHUB: access_pb2.Session.GITHUB,
    project_pb2.ProjectSSOConfig.OIDC: access_pb2.Session.OIDC,
}
"""How a person signs in, by the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A person whom their provider has sent back, signed in."""

    project_id: str
    identity: UserIdentity
    hours: int


class SsoSignIn:
    """Sends people to their provider, and identifies those who come back from it."""

    def __init__(
        self,
        stores: Stores,
        settings: SsoSettings,
        journeys: Journeys,
        public_url: Callable[[], str],
        *,
        audit: SignInAudit | None = None,
    ) -> None:
        self._audit = audit
        self._stores = stores
        self._settings = settings
        self._journeys = journeys
        self._public_url = public_url

    async def begin(self, project_id: str, next_path: str = "/") -> tuple[str, str]:
        """Returns the URL that the browser is sent to, and the cookie that it keeps meanwhile.

        Raises StateError when single sign-on is not set up.
        """
        project = await self._stores.projects.find(project_id)
        if project is None:
            # As for a project without single sign-on: do not reveal which projects exist.
            raise StateError("single sign-on is not set up for this project")
        try:
            sso = self._settings.read_config(project)
        except StateError as error:
            log.info("sso.not_set_up", project_id=project_id, error=str(error))
            raise StateError("single sign-on is not set up for this project") from None
        journey = self._journeys.begin(project_id, next_path)
        async with _provider_timeout():
            url = await self._make_provider(sso).start(journey)
        return url, self._journeys.cookie(journey)

    def find_next_path(self, cookie: str, state: str) -> str:
        """Returns the page that a sign-in leads to; `/` when we did not begin it."""
        try:
            return self._journeys.resume(cookie, state).next_path
        except UnauthenticatedError:
            return "/"

    async def finish(self, cookie: str, state: str, code: str, *, address: str = "") -> Arrival:
        """Returns who has signed in.

        Raises UnauthenticatedError when we did not begin this sign-in, or the person has no role.
        """
        journey: Journey = self._journeys.resume(cookie, state)
        if not code:
            raise UnauthenticatedError("the provider did not accept the sign-in")
        project = await self._stores.projects.get(journey.project_id)
        sso = self._settings.read_config(project)
        name = ""
        try:
            async with _provider_timeout():
                identity = await self._make_provider(sso).finish(journey, code)
            name = identity.subject
            identity = _require_role(project, identity)
        except UnauthenticatedError:
            if self._audit is not None:
                self._audit.note_failure(
                    project.id, name=name, via=VIAS.get(sso.provider, 0), address=address
                )
            raise
        return Arrival(
            project_id=project.id,
            identity=identity,
            hours=sso.session_ttl or DEFAULT_HOURS,
        )

    def _make_provider(self, sso: project_pb2.ProjectSSOConfig) -> GitHub | Oidc:
        if sso.provider == project_pb2.ProjectSSOConfig.OIDC:
            return Oidc(sso.oidc, self._public_url())
        return GitHub(sso.github, self._public_url())


def _require_role(project: project_pb2.Project, identity: UserIdentity) -> UserIdentity:
    """Returns the identity with a role. Raises UnauthenticatedError for a person without one."""
    if roles.roles_of(project, identity.groups, identity.roles):
        return identity
    if project.allow_stray_as_viewer:
        return replace(identity, roles=(*identity.roles, roles.VIEWER))
    log.info("sso.stray", project_id=project.id, subject=identity.subject)
    raise UnauthenticatedError(
        "you have no role in this project",
        hint="ask its admin to give one of your groups a role in the user groups",
    )


@asynccontextmanager
async def _provider_timeout() -> AsyncIterator[None]:
    """Limits the time of all calls to the provider together; raises UnavailableError."""
    try:
        async with asyncio.timeout(PROVIDER_TIMEOUT_SECONDS):
            yield
    except TimeoutError:
        raise UnavailableError("the sign-in provider does not answer") from None
