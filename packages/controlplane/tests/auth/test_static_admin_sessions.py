# SPDX-License-Identifier: Apache-2.0
"""The sessions of a static admin that is switched off, at the authenticator alone.

The record of the session is still there: that it no longer counts is decided at each call.
"""

import pytest

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.auth.session_authenticator import SessionAuthenticator
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import sessions
from pipecd_model.errors import UnauthenticatedError
from pipecd_wire.model import project_pb2
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.rpc.handlers import describe
from pipecd_wire.webservice import service_pb2

NOW = 1_000
GET_ME = describe(service_pb2.DESCRIPTOR.services_by_name["WebService"].methods_by_name["GetMe"])


def now() -> int:
    return NOW


class SignedIn:
    """Somebody with a session of the project `shop`."""

    def __init__(self, kept: Stores) -> None:
        self._kept = kept
        self._authenticator = SessionAuthenticator(kept, now)
        self.cookie = ""

    async def sign_in(self, via: sessions.Via.ValueType) -> None:
        identity = sessions.UserIdentity(subject="boss", via=via, roles=("Admin",))
        token = await sessions.start(self._kept, "shop", identity, now=now)
        self.cookie = f"token={token}"

    async def call(self) -> Person:
        return await self._authenticator.admit(GET_ME, self.cookie, "")

    async def switch_static_admin(self, *, disabled: bool) -> None:
        def edit(project: project_pb2.Project) -> None:
            project.static_admin_disabled = disabled

        await self._kept.projects.update("shop", edit)


@pytest.fixture
async def signed_in(kept: Stores) -> SignedIn:
    async def work(transaction: Transaction) -> None:
        project = project_pb2.Project(id="shop", created_at=1, updated_at=1)
        await kept.projects.add_in(transaction, project)

    await kept.database.write(work)
    return SignedIn(kept)


async def test_the_session_of_a_static_admin_who_is_switched_off_counts_no_more(
    signed_in: SignedIn,
) -> None:
    await signed_in.sign_in(access_pb2.Session.STATIC_ADMIN)
    assert (await signed_in.call()).name == "boss"

    await signed_in.switch_static_admin(disabled=True)

    with pytest.raises(UnauthenticatedError, match="Unauthenticated"):
        await signed_in.call()


async def test_the_session_that_switched_the_static_admin_off_goes_on(
    signed_in: SignedIn, kept: Stores
) -> None:
    """So that it can undo that."""
    await signed_in.sign_in(access_pb2.Session.STATIC_ADMIN)
    session_id = (await signed_in.call()).session_id

    def outlive(session: access_pb2.Session) -> None:
        session.outlives_static_admin = True

    async def work(transaction: Transaction) -> None:
        await kept.sessions.update_in(transaction, "shop", session_id, outlive)

    await kept.database.write(work)
    await signed_in.switch_static_admin(disabled=True)

    assert (await signed_in.call()).name == "boss"


async def test_it_counts_again_once_the_static_admin_is_switched_on(signed_in: SignedIn) -> None:
    await signed_in.sign_in(access_pb2.Session.STATIC_ADMIN)
    await signed_in.switch_static_admin(disabled=True)

    await signed_in.switch_static_admin(disabled=False)

    assert (await signed_in.call()).name == "boss"


@pytest.mark.parametrize("via", [access_pb2.Session.GITHUB, access_pb2.Session.OIDC])
async def test_whoever_signed_in_through_a_provider_goes_on(
    signed_in: SignedIn, via: sessions.Via.ValueType
) -> None:
    await signed_in.sign_in(via)

    await signed_in.switch_static_admin(disabled=True)

    assert (await signed_in.call()).name == "boss"
