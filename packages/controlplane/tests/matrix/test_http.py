# SPDX-License-Identifier: Apache-2.0
"""Every route of the site as everybody: which answer, and that nothing of others is told."""

import httpx2
import pytest

from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.project_side import Caller
from pipecd_test_support.rights_matrix import RightsMatrix
from pipecd_wire.pipecd.api import logs_pb2
from pipecd_wire.rpc.handlers import describe

# What everybody gets, signed in or not.
OPEN = {
    ("GET", "/"): 200,
    ("GET", "/healthz"): 200,
    ("GET", "/readyz"): 200,
    ("GET", "/version"): 200,
    ("GET", "/nothing"): 404,
    ("GET", "/auth/callback"): 303,
    ("GET", "/auth/login"): 405,
    ("GET", "/auth/login/static"): 405,
    ("POST", "/auth/login"): 303,
    ("POST", "/auth/login/static"): 303,
    ("GET", "/auth/terminal"): 200,
    # From no page of ours: what is answered there gives rights away.
    ("POST", "/auth/terminal"): 403,
    ("POST", "/auth/terminal/answer"): 403,
    ("POST", "/auth/terminal/start"): 200,
    ("POST", "/auth/terminal/poll"): 404,
    ("GET", "/auth/terminal/answer"): 405,
    ("GET", "/auth/terminal/start"): 405,
    ("GET", "/auth/terminal/poll"): 405,
    ("GET", "/auth/terminal/password"): 405,
    # Sent by no page of ours: nobody is let in.
    ("GET", "/auth/link"): 200,
    ("GET", "/auth/link.js"): 200,
    ("POST", "/auth/link"): 403,
    # Whoever they are: a hook is let in by its signature alone.
    ("POST", "/hooks/v1/{project}/{hook}"): 401,
    ("GET", "/hooks/v1/{project}/{hook}"): 405,
}
KEYS = {"read-only key", "read-write key"}


def headers(caller: Caller) -> dict[str, str]:
    return dict(caller.metadata)


@pytest.mark.timeout(600)
async def test_pages_are_the_same_for_everybody_and_metrics_are_for_keys(
    world: RightsMatrix, plane: ServedControlPlane
) -> None:
    wrong = []
    async with httpx2.AsyncClient(
        base_url=f"http://{plane.address}", trust_env=False, timeout=30
    ) as client:
        for side in (world.ours, world.theirs):
            for caller in side.callers:
                for (method, path), status in OPEN.items():
                    got = await client.request(method, path, headers=headers(caller))
                    if got.status_code != status:
                        wrong.append(f"{method} {path} by {caller.name}: {got.status_code}")
                    if got.cookies.get("token"):
                        wrong.append(f"{method} {path} by {caller.name} gave a session")
                got = await client.post("/auth/terminal/password", headers=headers(caller))
                if got.status_code not in {401, 429} or "token" in got.text:
                    wrong.append(f"a session without a password for {caller.name}")
                got = await client.get("/metrics", headers=headers(caller))
                expected = 200 if caller.name in KEYS else 401
                if got.status_code != expected:
                    wrong.append(f"/metrics by {caller.name}: {got.status_code}")
                other = "theirs" if side is world.ours else "ours"
                if f'project="{other}"' in got.text:
                    wrong.append(f"/metrics by {caller.name} tells of {other}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(600)
async def test_signing_out_ends_the_callers_own_session_and_no_other(
    world: RightsMatrix, plane: ServedControlPlane
) -> None:
    before = {
        side.project_id: {
            each.id
            for each in await plane.stores.sessions.open_of_project(side.project_id, now=side.now())
        }
        for side in (world.ours, world.theirs)
    }
    async with httpx2.AsyncClient(
        base_url=f"http://{plane.address}", trust_env=False, timeout=30
    ) as client:
        for caller in world.ours.callers:
            asked = await client.get("/auth/logout", headers=headers(caller))
            assert asked.status_code == 200
            assert not asked.cookies
            got = await client.post("/auth/logout", headers=headers(caller))
            assert got.status_code == 302

    left = {
        side.project_id: {
            each.id
            for each in await plane.stores.sessions.open_of_project(side.project_id, now=side.now())
        }
        for side in (world.ours, world.theirs)
    }
    assert left["theirs"] == before["theirs"]
    own = {
        caller.metadata[0][1].partition("token=")[2].partition(".")[0]
        for caller in world.ours.callers
        if caller.may or "role" in caller.name
    }
    assert left["ours"] == before["ours"] - own


@pytest.mark.timeout(600)
async def test_a_log_is_downloaded_by_those_who_may_read_it(
    world: RightsMatrix, plane: ServedControlPlane
) -> None:
    read = describe(
        logs_pb2.DESCRIPTOR.services_by_name["StageLogService"].methods_by_name["ReadStageLog"]
    )
    wrong = []
    async with httpx2.AsyncClient(
        base_url=f"http://{plane.address}", trust_env=False, timeout=30
    ) as client:
        query = {"deployment": await world.ours.log(), "stage": "s1"}
        for side in (world.ours, world.theirs):
            for caller in side.callers:
                got = await client.get("/download/stage-log", params=query, headers=headers(caller))
                allowed = caller.is_allowed(read)
                expected = {200} if allowed and side is world.ours else {401, 403, 404}
                if got.status_code not in expected:
                    wrong.append(f"{caller.name} of {side.project_id}: {got.status_code}")
    assert not wrong, "\n".join(wrong)


async def test_no_route_is_left_out(plane: ServedControlPlane) -> None:
    """The site tells its own routes; one that is not looked at above fails here."""
    looked_at = {path for _, path in OPEN} | {"/metrics", "/auth/logout", "/download/stage-log"}
    looked_at |= {"/{path:path}"}  # the console's: "/nothing" is one of them
    assert set(plane.running.paths) <= looked_at
