# SPDX-License-Identifier: Apache-2.0
"""One of several control planes goes away, or loses its database for a while."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pipecd_controlplane.store.changes import Change, ChangeKind, project_topic
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.notices import Notice, decode_notice
from pipecd_controlplane.store.postgres.session import SessionSubscriber
from pipecd_controlplane.usecases.bus import Bus, Listener
from pipecd_controlplane.usecases.change_history import ChangeHistories
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.replicated.attempts import ReplicatedAttemptLimiter
from pipecd_controlplane.usecases.replicated.bus import ReplicatedBus
from pipecd_controlplane.usecases.replicated.echo import Echo
from pipecd_controlplane.usecases.replicated.messages import SealedBox
from pipecd_controlplane.usecases.replicated.notifier import Notifier
from pipecd_controlplane.usecases.replicated.state import ReplicatedState, open_replicated
from pipecd_model.errors import UnavailableError
from pipecd_test_support.postgres import PostgresForTests, running_postgres
from pipecd_test_support.waiting import Soon

AGENT = Agent(project_id="ours", piped_id="piped")
CHANGE = Change(kind=ChangeKind.PIPED, id="piped", project_id="ours")
KEY = b"k" * 64


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "all.key"
    path.write_bytes(KEY)
    return path


@pytest.fixture
async def pair(
    where: PostgresServer, key_file: Path, tmp_path: Path
) -> AsyncIterator[tuple[ReplicatedState, ReplicatedState]]:
    async with (
        open_replicated(where, tmp_path, [key_file]) as one,
        open_replicated(where, tmp_path, [key_file]) as other,
    ):
        yield one, other


async def age(state: ReplicatedState, replica_id: str) -> None:
    """Make it look as if a control plane had given no sign of life for a long time."""
    await state.database.shared_tables.run(
        "UPDATE pipecd_replica SET seen_at = now() - interval '1 hour' WHERE id = $1", replica_id
    )
    await state.database.shared_tables.run(
        "UPDATE pipecd_channel SET opened_at = now() - interval '1 hour' WHERE replica_id = $1",
        replica_id,
    )


async def wait_sent_away(listener: Listener, soon: Soon) -> None:
    async def read_on() -> None:
        while True:
            await listener.wait_changes()

    with pytest.raises(UnavailableError, match="may have been missed"):
        await soon(read_on())


async def test_the_agents_of_a_server_that_died_are_not_connected_any_more(
    pair: tuple[ReplicatedState, ReplicatedState], soon: Soon
) -> None:
    one, dead = pair
    async with dead.presence.connection(AGENT):
        assert await one.presence.find_connected(["piped"]) == {"piped"}
        await age(one, dead.database.replica_id)
        assert await one.presence.find_connected(["piped"]) == set()
        with one.bus.listen(project_topic("ours")) as people:
            await one.heartbeat.bury_dead()

            assert await soon(people.wait_changes()) == [CHANGE]
        assert (await one.presence.find_seconds_since_connected(["piped"])).keys() == {"piped"}


async def test_a_server_that_only_stood_still_makes_itself_known_again(
    pair: tuple[ReplicatedState, ReplicatedState], soon: Soon
) -> None:
    one, slow = pair
    with one.bus.listen(project_topic("ours")) as people:
        async with slow.presence.connection(AGENT):
            assert await soon(people.wait_changes()) == [CHANGE]
            await age(one, slow.database.replica_id)
            await one.heartbeat.bury_dead()
            assert await soon(people.wait_changes()) == [CHANGE]
            assert await one.presence.find_connected(["piped"]) == set()

            await slow.heartbeat.beat()

            assert await soon(people.wait_changes()) == [CHANGE]
            assert await one.presence.find_connected(["piped"]) == {"piped"}


async def test_whoever_may_have_missed_something_is_sent_away_to_read_again(
    pair: tuple[ReplicatedState, ReplicatedState], soon: Soon
) -> None:
    one, _other = pair
    histories = ChangeHistories(one.bus)
    history = histories.find("ours")
    position = history.position
    with one.bus.listen(project_topic("ours")) as listener:
        one.database.session.drop()

        await wait_sent_away(listener, soon)
    assert not history.read_since(position).is_whole
    assert history.read_since(history.position).is_whole
    with one.bus.listen(project_topic("ours")) as again:
        one.bus.publish([CHANGE])
        assert await soon(again.wait_changes()) == [CHANGE]


async def test_one_notice_does_for_all_who_have_to_catch_up(
    pair: tuple[ReplicatedState, ReplicatedState], soon: Soon
) -> None:
    one, other = pair
    heard: asyncio.Queue[Notice | None] = asyncio.Queue()
    subscriber = SessionSubscriber(
        hear=lambda payload: heard.put_nowait(decode_notice(payload)), resync=lambda: None
    )
    with other.database.session.subscription(subscriber):
        async with asyncio.TaskGroup() as tasks:
            for _ in range(50):
                tasks.create_task(one.bus.catch_up())
        one.bus.publish([CHANGE])
        pings = 0
        while not (notice := await soon(heard.get())) or not notice.changes:
            pings += bool(notice and notice.ping)

    assert 1 <= pings <= 5  # one for the first, one for the others; heartbeats have theirs


async def test_who_cannot_catch_up_is_answered_all_the_same(
    pair: tuple[ReplicatedState, ReplicatedState], soon: Soon
) -> None:
    """What it reads is as old as the session that was lost; all is read anew after that."""
    notifier = Notifier(pair[0].database)
    unheard = Echo(notifier)
    bus = ReplicatedBus(Bus(), notifier, unheard, catch_up_seconds=0.1)

    await soon(bus.catch_up())


async def test_a_job_goes_to_another_server_when_its_own_ends(
    pair: tuple[ReplicatedState, ReplicatedState],
) -> None:
    one, other = pair
    async with one.job_leader.claim("job") as granted:
        assert granted
    for _ in range(2):
        async with other.job_leader.claim("job") as granted:
            assert not granted

    await one.job_leader.close()

    async with other.job_leader.claim("job") as granted:
        assert granted
    async with one.job_leader.claim("job") as granted:
        assert not granted


async def test_a_postgres_that_crashed_empties_the_tables_and_everything_goes_on(
    key_file: Path, tmp_path: Path, soon: Soon
) -> None:
    """The tables are unlogged: after a crash the servers write down again what they know."""

    async def restart(server: PostgresForTests) -> None:
        await asyncio.to_thread(server.stop, signal.SIGQUIT)
        await asyncio.to_thread(server.start)

    async with AsyncExitStack() as opened:
        server = opened.enter_context(running_postgres())
        where = PostgresServer(url=server.url(server.create_database(is_empty=True)), connections=4)
        one = await opened.enter_async_context(open_replicated(where, tmp_path, [key_file]))
        other = await opened.enter_async_context(open_replicated(where, tmp_path, [key_file]))
        await opened.enter_async_context(one.presence.connection(AGENT))
        with (
            one.bus.listen(project_topic("ours")) as here,
            other.bus.listen(project_topic("ours")) as there,
        ):
            await restart(server)
            for listener in (here, there):
                await wait_sent_away(listener, soon)
        await one.heartbeat.beat()
        await other.heartbeat.beat()
        assert await other.presence.find_connected(["piped"]) == {"piped"}
        with other.bus.listen(project_topic("ours")) as there:
            one.bus.publish([CHANGE])
            assert await soon(there.wait_changes()) == [CHANGE]


def test_only_the_receiver_opens_a_message_and_only_with_the_shared_key() -> None:
    one, other, stranger = SealedBox([KEY]), SealedBox([b"n" * 32, KEY]), SealedBox([b"x" * 32])
    sealed = one.seal(b"hush", to=other.public_key, context="id")

    assert other.open(sealed, context="id") == b"hush"
    assert b"hush" not in sealed
    assert other.open(sealed, context="another") is None
    assert one.open(sealed, context="id") is None
    assert other.open(stranger.seal(b"x", to=other.public_key, context="id"), context="id") is None
    for broken in (b"", sealed[:10], sealed[:50], sealed[:-1], bytes(32) + sealed[32:]):
        assert other.open(broken, context="id") is None


async def test_the_number_of_counted_keys_has_a_limit_and_an_empty_bucket_stays(
    pair: tuple[ReplicatedState, ReplicatedState],
) -> None:
    limit = ReplicatedAttemptLimiter(
        pair[0].database.shared_tables, "few", burst=2, seconds=600, most=3
    )
    for key in ("boss", "boss", "a", "b"):
        assert await limit.take(key) == 0.0
    assert await limit.take("boss") > 0

    assert await limit.take("newcomer") == 0.0  # in the place of one that was used less
    assert await limit.take("boss") > 0
    for key in ("newcomer", "b"):
        await limit.take(key)
        await limit.take(key)
    assert await limit.take("another") > 0  # all have run out
