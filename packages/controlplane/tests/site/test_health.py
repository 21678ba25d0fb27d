# SPDX-License-Identifier: Apache-2.0
"""Health that is true: it says no when calls would fail."""

from pathlib import Path

import httpx2

from pipecd_controlplane.http.probes import Probes
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.stores import stores
from pipecd_test_support.controlplane_server import ServedControlPlane


async def test_a_server_that_works_is_well_and_ready(
    plane: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    for path in ("/healthz", "/readyz"):
        answer = await client.get(f"http://{plane.address}{path}")
        assert (answer.status_code, answer.text) == (200, "ok")


async def test_a_database_that_does_not_answer_is_told(tmp_path: Path) -> None:
    async with open_database(
        SqliteFolder(folder=tmp_path / "data"), on_commit=lambda _changes: None
    ) as database:
        kept = stores(database, lambda: 1)
        probes = Probes(kept, tmp_path)
        assert await probes.health() == ""

    gone = Probes(kept, tmp_path)
    assert (await gone.health()).startswith("the database cannot be used")
    assert (await gone.readiness()).startswith("the database cannot be used")


async def test_a_server_that_stops_wants_no_more_work(tmp_path: Path) -> None:
    async with open_database(
        SqliteFolder(folder=tmp_path / "data"), on_commit=lambda _changes: None
    ) as database:
        probes = Probes(stores(database, lambda: 1), tmp_path)
        assert await probes.readiness() == ""

        probes.stop()

        assert await probes.readiness() == "it is stopping"
        assert await probes.health() == ""
