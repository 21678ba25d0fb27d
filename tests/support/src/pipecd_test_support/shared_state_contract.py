# SPDX-License-Identifier: Apache-2.0
"""What every shared state promises: its tests inherit these, and give `replicas`.

Two handles of one control plane. Where that is one process, they are the same object.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from pipecd_controlplane.store.changes import Change, ChangeKind, piped_topic, project_topic
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.bus import Listener
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.shared_state import (
    LoginRequest,
    NobodyAnswersError,
    SharedState,
    Sighting,
)
from pipecd_controlplane.usecases.vault import Vault
from pipecd_model.errors import (
    ConfigError,
    ConflictError,
    NotFoundError,
    PipecdError,
    TimedOutError,
    UnavailableError,
)
from pipecd_wire.pipecd.push import push_pb2

Replicas = tuple[SharedState, SharedState]

WAIT_SECONDS = 20
DAY_SECONDS = 86_400.0
CHANGE = Change(kind=ChangeKind.PIPED, id="piped", project_id="ours")


async def hear(listener: Listener) -> list[Change]:
    async with asyncio.timeout(WAIT_SECONDS):
        return await listener.wait_changes()


async def _fail(asked: Coroutine[object, object, object]) -> Exception | None:
    """Returns the error that it raises."""
    try:
        await asked
    except PipecdError as error:
        return error
    return None


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

    async def test_the_end_of_the_last_connection_is_known(self, replicas: Replicas) -> None:
        one, other = replicas
        agent = Agent(project_id="ours", piped_id="piped")
        ids = ["piped", "another"]
        async with one.presence.connection(agent):
            async with other.presence.connection(agent):
                pass
            assert await other.presence.find_seconds_since_connected(ids) == {}

        since = await other.presence.find_seconds_since_connected(ids)

        assert since.keys() == {"piped"}
        assert 0 <= since["piped"] < 600

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

    async def test_of_many_attempts_at_once_as_many_pass_as_may(self, replicas: Replicas) -> None:
        """Also of the first ones, of which each finds that nothing was counted yet."""
        limits = [state.limit_attempts("crowd", burst=5, seconds=DAY_SECONDS) for state in replicas]

        waits = await asyncio.gather(*(limits[n % len(limits)].take("a") for n in range(40)))

        assert waits.count(0.0) == 5

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

    async def test_a_login_is_answered_once_and_taken_once(self, replicas: Replicas) -> None:
        one, other = (state.login_requests for state in replicas)
        asked = LoginRequest(user_code="BCDF", device_hash="h1", client="pipectl", address="::1")
        await one.add(asked, network="n", seconds=DAY_SECONDS)

        assert await other.find_open("BCDF") == asked
        assert await other.take("h1") == asked
        assert await one.answer("BCDF", session_id="s", is_refused=False)
        assert not await other.answer("BCDF", session_id="thief", is_refused=False)
        assert not await other.answer("BCDF", session_id="", is_refused=True)
        assert await other.find_open("BCDF") is None
        taken = await other.take("h1")
        assert taken is not None
        assert (taken.session_id, taken.is_refused) == ("s", False)
        assert await one.take("h1") is None

    async def test_a_login_is_not_answered_under_another_code(self, replicas: Replicas) -> None:
        one, other = (state.login_requests for state in replicas)
        asked = LoginRequest(user_code="BCDF", device_hash="h1", client="", address="")
        await one.add(asked, network="n", seconds=DAY_SECONDS)

        with pytest.raises(ConflictError):
            await other.add(replace(asked, device_hash="h2"), network="n", seconds=DAY_SECONDS)
        assert await other.find_open("XXXX") is None
        assert not await other.answer("XXXX", session_id="s", is_refused=False)
        assert await other.take("h2") is None
        assert await other.take("h1") == asked

    async def test_a_login_that_is_over_is_forgotten(self, replicas: Replicas) -> None:
        one, other = (state.login_requests for state in replicas)
        asked = LoginRequest(user_code="BCDF", device_hash="h1", client="", address="")
        await one.add(asked, network="n", seconds=0)

        assert await other.find_open("BCDF") is None
        assert not await other.answer("BCDF", session_id="s", is_refused=False)
        assert await other.take("h1") is None

    async def test_a_question_is_answered_through_any_replica(self, replicas: Replicas) -> None:
        one, other = replicas
        agent = Agent(project_id="ours", piped_id="piped")
        question = push_pb2.Question(id="q")
        with other.bus.listen(piped_topic("piped")) as there:
            async with (
                asyncio.timeout(WAIT_SECONDS),
                other.questions.channel(agent) as take,
                asyncio.TaskGroup() as tasks,
            ):
                asked = tasks.create_task(one.questions.ask(agent, question, seconds=DAY_SECONDS))
                assert [each.kind for each in await hear(there)] == [ChangeKind.QUESTION]
                assert await take() == [question]
                assert await take() == []
                for stranger in (
                    Agent(project_id="ours", piped_id="another"),
                    Agent(project_id="theirs", piped_id="piped"),
                ):
                    with pytest.raises(NotFoundError):
                        await other.questions.answer(
                            stranger, push_pb2.AnswerQuestionRequest(question_id="q")
                        )
                answer = push_pb2.AnswerQuestionRequest(
                    question_id="q", no_answer=push_pb2.NoAnswer(sentence="no")
                )
                await one.questions.answer(agent, answer)
            assert asked.result() == answer
            with pytest.raises(NotFoundError):
                await other.questions.answer(agent, answer)

    async def test_a_question_that_nobody_answers_ends(self, replicas: Replicas) -> None:
        one, other = replicas
        agent = Agent(project_id="ours", piped_id="piped")
        with pytest.raises(NobodyAnswersError):
            await one.questions.ask(agent, push_pb2.Question(id="q"), seconds=DAY_SECONDS)
        async with other.questions.channel(agent):
            with pytest.raises(TimedOutError):
                await one.questions.ask(agent, push_pb2.Question(id="q"), seconds=0)
        with other.bus.listen(piped_topic("piped")) as there:
            async with (
                asyncio.timeout(WAIT_SECONDS),
                asyncio.TaskGroup() as tasks,
                other.questions.channel(agent) as take,
            ):
                asked = tasks.create_task(
                    _fail(one.questions.ask(agent, push_pb2.Question(id="q"), seconds=60))
                )
                await hear(there)
                await take()
            assert isinstance(asked.result(), UnavailableError)

    async def test_hints_for_one_branch_are_one_until_they_are_taken(
        self, replicas: Replicas
    ) -> None:
        one, other = replicas
        agent = Agent(project_id="ours", piped_id="piped")
        stranger = Agent(project_id="ours", piped_id="another")

        def hint(branch: str, commit_hash: str) -> push_pb2.GitHint:
            return push_pb2.GitHint(repository_id="r", branch=branch, commit_hash=commit_hash)

        assert not await one.git_hints.send(agent, hint("main", "a"))
        with other.bus.listen(piped_topic("piped")) as there:
            async with (
                other.git_hints.channel(agent) as take,
                other.git_hints.channel(agent) as take_too,
                other.git_hints.channel(stranger) as take_nothing,
            ):
                for number in range(50):
                    assert await one.git_hints.send(agent, hint("main", str(number)))
                assert await one.git_hints.send(agent, hint("next", "b"))
                taken: list[push_pb2.GitHint] = []
                while hint("next", "b") not in taken:
                    assert {each.kind for each in await hear(there)} == {ChangeKind.GIT_HINT}
                    part = await take()
                    assert len({each.branch for each in part}) == len(part)
                    taken += part
                assert taken[-2:] == [hint("main", "49"), hint("next", "b")]
                assert await take() == []
                assert await take_too() == [hint("main", "49"), hint("next", "b")]
                assert await take_nothing() == []
        assert not await one.git_hints.send(agent, hint("main", "a"))

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
