# SPDX-License-Identifier: Apache-2.0
"""Health that is true: it says no when calls would fail."""

from pathlib import Path

import httpx2

from pipecd_controlplane.http.probes import Probes
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.open import open_database
from pipecd_controlplane.store.stores import stores
from pipecd_test_support.chosen_store import choose_database
from pipecd_test_support.controlplane_server import ServedControlPlane

BAD = ("the database cannot be used", "the database does not answer")
"""One that is not in this process is waited for."""


async def test_a_server_that_works_is_well_and_ready(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    for path in ("/healthz", "/readyz"):
        answer = await client.get(f"http://{plane.address}{path}")
        assert (answer.status_code, answer.text) == (200, "ok")


async def test_a_balancer_can_leave_the_blob_store_out(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    answer = await client.get(f"http://{plane.address}/readyz?exclude=blobs")
    assert (answer.status_code, answer.text) == (200, "ok")
    answer = await client.get(f"http://{plane.address}/readyz?exclude=database")
    assert (answer.status_code, answer.text) == (400, "exclude can only name: blobs\n")


async def test_a_database_that_does_not_answer_is_told(tmp_path: Path) -> None:
    async with open_database(
        choose_database(tmp_path / "data"), on_commit=lambda _changes: None
    ) as database:
        kept = stores(database, lambda: 1)
        probes = Probes(kept, tmp_path)
        assert await probes.health() == ""

    gone = Probes(kept, tmp_path)
    assert (await gone.health()).startswith(BAD)
    assert (await gone.readiness()).startswith(BAD)


async def test_a_server_that_stops_wants_no_more_work(tmp_path: Path) -> None:
    async with open_database(
        choose_database(tmp_path / "data"), on_commit=lambda _changes: None
    ) as database:
        probes = Probes(stores(database, lambda: 1), tmp_path)
        assert await probes.readiness() == ""

        probes.stop()

        assert await probes.readiness() == "it is stopping"
        assert await probes.health() == ""


async def test_a_blob_store_that_is_gone_is_told_and_health_is_not_harmed(tmp_path: Path) -> None:
    """Nothing is gained by a restart of the server; others may have the share still."""
    blobs = FolderBlobs(tmp_path / "blobs")
    await blobs.open()
    async with open_database(
        choose_database(tmp_path / "data"), on_commit=lambda _changes: None
    ) as database:
        kept = stores(database, lambda: 1, blobs=blobs)
        probes = Probes(kept, tmp_path)
        assert await probes.readiness() == ""

        (tmp_path / "blobs").rename(tmp_path / "away")

        assert await probes.readiness() == "", "the answer is a few seconds old"
        assert "is gone" in await Probes(kept, tmp_path).readiness()
        assert await Probes(kept, tmp_path).readiness(exclude={"blobs"}) == ""
        assert await probes.health() == ""
