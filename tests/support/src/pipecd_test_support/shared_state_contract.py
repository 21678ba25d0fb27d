# SPDX-License-Identifier: Apache-2.0
"""What every shared state promises: its tests inherit these, and give `replicas`.

Two handles of one control plane. Where that is one process, they are the same object.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pipecd_controlplane.store.changes import Change, ChangeKind, project_topic
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.bus import Listener
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.shared_state import SharedState, Sighting
from pipecd_controlplane.usecases.vault import Vault
from pipecd_model.errors import ConfigError, UnavailableError

Replicas = tuple[SharedState, SharedState]

WAIT_SECONDS = 20
DAY_SECONDS = 86_400.0
CHANGE = Change(kind=ChangeKind.PIPED, id="piped", project_id="ours")


async def hear(listener: Listener) -> list[Change]:
    async with asyncio.timeout(WAIT_SECONDS):
        return await listener.wait_changes()


class SharedStateContract:
    """Inherit it, and give the two `replicas`; `kept` are the stores of their database."""

    @pytest.fixture
    def replicas(self) -> Replicas:
        raise NotImplementedError

    async def test_a_change_is_heard_in_every_replica(self, replicas: Replicas) -> None:
        one, other = replicas
        with (
            one.bus.listen(project_topic("ours")) as here,
            other.bus.listen(project_topic("ours")) as there,
        ):
            one.bus.publish([CHANGE])

            assert [await hear(here), await hear(there)] == [[CHANGE], [CHANGE]]

    async def test_a_bus_that_stops_ends_its_listeners(self, replicas: Replicas) -> None:
        one, _other = replicas
        with one.bus.listen(project_topic("ours")) as here:
            one.bus.stop()

            with pytest.raises(UnavailableError):
                await hear(here)

    async def test_a_piped_is_connected_until_its_last_connection_ends(
        self, replicas: Replicas
    ) -> None:
        one, other = replicas
        agent = Agent(project_id="ours", piped_id="piped")
        async with one.presence.connection(agent):
            async with other.presence.connection(agent):
                assert await one.presence.find_connected(["piped", "another"]) == {"piped"}
            assert await other.presence.find_connected(["piped", "another"]) == {"piped"}
        assert await other.presence.find_connected(["piped", "another"]) == set()

    async def test_a_connection_is_published_when_it_begins_and_ends(
        self, replicas: Replicas
    ) -> None:
        one, other = replicas
        with other.bus.listen(project_topic("ours")) as there:
            async with one.presence.connection(Agent(project_id="ours", piped_id="piped")):
                assert await hear(there) == [CHANGE]
            assert await hear(there) == [CHANGE]

    async def test_sightings_are_in_one_order(self, replicas: Replicas) -> None:
        async def record(state: SharedState, mark: str, method: str = "ReportStat") -> list[str]:
            sighting = Sighting(mark=mark, peer=f"at {mark}", under_lease=False)
            since = await state.sightings.record(
                "piped", method, sighting, window_seconds=DAY_SECONDS
            )
            return [each.peer for each in since]

        one, other = replicas
        assert await record(one, "a") == []
        assert await record(other, "b") == []
        assert await record(other, "c") == []
        assert await record(other, "a", "Ping") == []
        assert await record(other, "a") == ["at b", "at c"]
        assert await record(one, "a") == []
        assert await record(one, "b") == ["at c", "at a"]

    async def test_attempts_are_counted_together_by_name_and_key(self, replicas: Replicas) -> None:
        here, there = (
            state.limit_attempts("here", burst=2, seconds=DAY_SECONDS) for state in replicas
        )
        apart = replicas[0].limit_attempts("apart", burst=1, seconds=DAY_SECONDS)
        assert [await limit.take("key") for limit in (here, there)] == [0.0, 0.0]

        waits = [await limit.take("key") for limit in (here, there)]

        assert all(0 < wait <= DAY_SECONDS for wait in waits)
        assert await apart.take("key") == await here.take("another") == 0.0

    async def test_attempts_can_be_given_back_one_or_all(self, replicas: Replicas) -> None:
        limit = replicas[0].limit_attempts("here", burst=2, seconds=DAY_SECONDS)
        for _ in range(2):
            await limit.take("key")
        await limit.give_back("key")
        assert [await limit.take("key") > 0 for _ in range(2)] == [False, True]
        await limit.forget("key")
        assert [await limit.take("key") > 0 for _ in range(3)] == [False, False, True]

    async def test_a_network_becomes_familiar_for_its_account(self, replicas: Replicas) -> None:
        one, other = replicas
        await one.familiar_networks.add("ada", "10.0.0.0/24")

        assert await other.familiar_networks.has("ada", "10.0.0.0/24")
        assert not await other.familiar_networks.has("ada", "10.0.1.0/24")
        assert not await other.familiar_networks.has("bob", "10.0.0.0/24")

    async def test_a_use_of_a_key_is_known_at_once_and_kept_by_a_flush(
        self, replicas: Replicas, kept: Stores
    ) -> None:
        one, other = replicas
        await one.key_uses.note("ours", "key", 70)
        assert await one.key_uses.find_last("ours", "key") == 70
        await one.key_uses.flush(kept)
        await other.key_uses.note("ours", "key", 60)
        await other.key_uses.flush(kept)

        assert (await kept.api_key_facts.get("key")).last_used_at == 70

    async def test_a_job_is_granted_to_one_process_at_a_time(self, replicas: Replicas) -> None:
        for _ in range(2):
            async with AsyncExitStack() as claims:
                granted = {
                    id(state)
                    for state in replicas
                    if await claims.enter_async_context(state.job_leader.claim("job"))
                }

            assert len(granted) == 1

    async def test_what_one_replica_encrypts_the_other_decrypts(
        self, replicas: Replicas, tmp_path: Path
    ) -> None:
        one, other = replicas
        given = tmp_path / "given.key"
        given.write_bytes(b"k" * 32)
        for files in ([], [given]):
            text = Vault(await one.read_encryption_keys(files)).encrypt("hush", place="a")

            opened = Vault(await other.read_encryption_keys(files)).decrypt(text, place="a")

            assert opened == "hush"
        with pytest.raises(ConfigError):
            await one.read_encryption_keys([tmp_path / "missing.key"])
