# SPDX-License-Identifier: Apache-2.0
"""What a session may call, at the authenticator alone: its roles, their labels, its cookie."""

import pytest

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.auth.session_authenticator import SessionAuthenticator, find_cookie
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import sessions
from pipecd_controlplane.usecases.roles import Grant
from pipecd_model.errors import DeniedError, UnauthenticatedError
from pipecd_wire.model import project_pb2 as pb
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import Method
from pipecd_wire.rpc.handlers import describe
from pipecd_wire.webservice import service_pb2 as webservice

NOW = 1_000
Resource, Policy = pb.ProjectRBACResource, pb.ProjectRBACPolicy


def web(name: str) -> Method:
    return describe(webservice.DESCRIPTOR.services_by_name["WebService"].methods_by_name[name])


GET_COMMAND = web("GetCommand")
"""For everybody who has a role."""
LIST_KEYS = web("ListAPIKeys")
LIST_APPLICATIONS = web("ListApplications")
"""Its handler looks at labels."""
ADD_APPLICATION = web("AddApplication")
"""Its handler does not."""


def limited(
    name: str, *resources: pb.ProjectRBACResource.ResourceType.ValueType
) -> pb.ProjectRBACRole:
    """A role that may do everything with these resources where they are of team a."""
    policy = Policy(
        resources=[Resource(type=each, labels={"team": "a"}) for each in resources],
        actions=[Policy.ALL],
    )
    return pb.ProjectRBACRole(name=name, policies=[policy])


class Site:
    """A project `ours`, and whoever signs in to it."""

    def __init__(self, kept: Stores) -> None:
        self.kept = kept
        self.authenticator = SessionAuthenticator(kept, lambda: NOW)

    async def sign_in(self, *roles: str, project_id: str = "ours", hours: int = 1) -> str:
        identity = sessions.UserIdentity(
            subject="ada", via=access_pb2.Session.OIDC, avatar_url="https://a/1", roles=roles
        )
        token = await sessions.start(self.kept, project_id, identity, now=lambda: NOW, hours=hours)
        return f"token={token}"

    async def admit(self, method: Method, *roles: str) -> Person:
        return await self.authenticator.admit(method, await self.sign_in(*roles), "once")


@pytest.fixture
async def site(kept: Stores) -> Site:
    async def work(transaction: Transaction) -> None:
        project = pb.Project(
            id="ours",
            rbac_roles=[
                limited("Team", Resource.APPLICATION, Resource.DEPLOYMENT),
                limited("Everything of the team", Resource.ALL),
            ],
            created_at=1,
            updated_at=1,
        )
        await kept.projects.add_in(transaction, project)

    await kept.database.write(work)
    return Site(kept)


async def test_a_session_is_a_person_with_all_that_handlers_ask(site: Site) -> None:
    cookie = await site.sign_in("Admin")
    session_id = cookie.removeprefix("token=").partition(".")[0]

    person = await site.authenticator.admit(LIST_KEYS, cookie, "once")

    assert person == Person(
        project_id="ours",
        session_id=session_id,
        name="ada",
        via=access_pb2.Session.OIDC,
        avatar_url="https://a/1",
        grant=Grant(),
        may_change_project=True,
        expires_at=NOW + 3600,
        idempotency_key="once",
    )


async def test_without_an_open_session_everybody_signs_in_again(site: Site) -> None:
    good = await site.sign_in("Admin")
    gone = await site.sign_in("Admin", project_id="deleted")
    over = await site.sign_in("Admin", hours=0)

    for cookies in ("", "token=", f"{good}x", f"other={good}", gone, over):
        with pytest.raises(UnauthenticatedError, match="Unauthenticated") as caught:
            await site.authenticator.admit(GET_COMMAND, cookies, "")
        assert caught.value.hint == "sign in again"


async def test_an_open_session_is_found_by_its_cookie_alone(site: Site) -> None:
    cookie = await site.sign_in("Viewer")

    found = await site.authenticator.find(cookie)

    assert found is not None
    assert (found.project_id, found.subject) == ("ours", "ada")
    for cookies in ("", f"{cookie}x", await site.sign_in("Viewer", hours=0)):
        assert await site.authenticator.find(cookies) is None


async def test_a_session_lets_its_user_in_until_it_or_its_project_is_over(site: Site) -> None:
    session = access_pb2.Session(
        project_id="ours", via=access_pb2.Session.STATIC_ADMIN, expires_at=NOW + 1
    )
    assert await site.authenticator.is_good(session)

    over, gone = access_pb2.Session(), access_pb2.Session()
    over.CopyFrom(session)
    over.expires_at = NOW
    gone.CopyFrom(session)
    gone.project_id = "deleted"
    assert not await site.authenticator.is_good(over)
    assert not await site.authenticator.is_good(gone)

    def switch_off(project: pb.Project) -> None:
        project.static_admin_disabled = True

    await site.kept.projects.update("ours", switch_off)
    assert not await site.authenticator.is_good(session)


async def test_what_no_role_allows_is_denied(site: Site) -> None:
    for roles in ((), ("Gone",)):
        with pytest.raises(DeniedError, match="Permission Denied"):
            await site.admit(GET_COMMAND, *roles)
    with pytest.raises(DeniedError):
        await site.admit(LIST_KEYS, "Viewer")

    assert (await site.admit(LIST_APPLICATIONS, "Viewer")).grant == Grant()


async def test_what_everybody_may_is_for_whoever_has_a_role(site: Site) -> None:
    for role in ("Viewer", "Team"):
        assert (await site.admit(GET_COMMAND, role)).grant == Grant()


async def test_a_method_that_is_not_for_people_is_denied_to_an_admin(site: Site) -> None:
    services = pipedservice.DESCRIPTOR.services_by_name
    report = describe(services["PipedService"].methods_by_name["ReportStat"])

    with pytest.raises(DeniedError):
        await site.admit(report, "Admin")


async def test_a_right_that_labels_limit_reaches_only_where_labels_are_looked_at(
    site: Site,
) -> None:
    person = await site.admit(LIST_APPLICATIONS, "Team")

    assert person.grant == Grant(label_sets=({"team": "a"},))
    with pytest.raises(DeniedError):
        await site.admit(ADD_APPLICATION, "Team")
    assert (await site.admit(ADD_APPLICATION, "Editor")).grant == Grant()


async def test_who_may_change_the_project_is_known_to_handlers(site: Site) -> None:
    """Whole or not at all: a project has no labels."""
    for role, allowed in (
        ("Admin", True),
        ("Editor", False),
        ("Viewer", False),
        ("Everything of the team", False),
    ):
        assert (await site.admit(LIST_APPLICATIONS, role)).may_change_project is allowed


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("token=a", "a"),
        ("x=1; token=a", "a"),
        ("token=a; token=b", "a"),
        ("token; token=a", "a"),
        ('x=1; token="a" ; y=2', "a"),
        ("token=a=b", "a=b"),
        ("xtoken=a", ""),
        ("token", ""),
        ("", ""),
    ],
)
def test_a_cookie_is_found_in_whatever_comes(header: str, value: str) -> None:
    assert find_cookie(header, "token") == value
