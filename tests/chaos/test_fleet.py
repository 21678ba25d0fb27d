# SPDX-License-Identifier: Apache-2.0
"""What is drawn and done where several control planes share a database."""

import asyncio
import itertools
from collections import Counter

import asyncpg
import pytest

from chaos import fleet
from chaos.database import KeptDatabase, running_database
from chaos.fleet import DEATHS, fleet_drawn, fleet_rounds
from chaos.places import FLEET_PLACES, SQLITE_PLACES, needs_restart
from chaos.promises import Violation
from chaos.schedule import Round, drawn
from chaos.spread import SpreadMethod
from chaos.summary import Broken, too_few
from pipecd_test_support.waiting import PROCESS_LIMIT_SECONDS

MANY = 200
NEW = {*fleet.MISHAPS} - {"kill", "cut", "hole"}


def many(seed: str) -> list[Round]:
    return list(itertools.islice(fleet_rounds(seed), MANY))


def test_the_same_seed_gives_the_same_rounds_of_a_fleet() -> None:
    assert many("seed") == many("seed")
    assert fleet_drawn("seed", 17) == many("seed")[17]


def test_every_round_loses_a_control_plane_or_the_database() -> None:
    for plan in many("seed")[1:]:
        beside = set(plan.injections) - set(drawn("seed", plan.number).injections)
        assert any(each.kind in DEATHS for each in beside)


def test_every_mishap_of_a_fleet_comes() -> None:
    injections = [each for plan in many("seed") for each in plan.injections]
    assert {each.kind for each in injections} >= NEW
    assert {each.what for each in injections if each.kind == "kill"} >= set(fleet.KILLS)
    assert {place for plan in many("seed") for place in plan.places} >= set(FLEET_PLACES)


def test_no_control_plane_of_a_fleet_is_to_die_in_sqlite() -> None:
    assert SQLITE_PLACES.isdisjoint(place for plan in many("seed") for place in plan.places)


def test_a_piped_dies_first_where_a_place_of_its_start_is_armed() -> None:
    for plan in many("seed"):
        if needs_restart(plan.places):
            assert "piped" in plan.injections[0].victims


def test_a_round_of_a_fleet_is_drawn_again_as_one() -> None:
    violation = Violation(promise="once", sentence="ran twice")
    broken = Broken("seed", fleet_drawn("seed", 3), violation, replicas=2)
    assert broken.again == 'make chaos SEED=seed ARGS="--only 3 --replicas 2"'


def test_places_that_no_control_plane_of_a_fleet_reaches_are_not_missed() -> None:
    assert set(too_few(Counter(), 1, replicas=2)) >= set(FLEET_PLACES)
    assert SQLITE_PLACES.isdisjoint(too_few(Counter(), 1, replicas=2))
    assert set(FLEET_PLACES).isdisjoint(too_few(Counter(), 1))


class NamedMethod:
    """Stands for an RPC of one control plane, and answers with its name."""

    def __init__(self, name: str) -> None:
        self._method = b"/service/Method"
        self._name = name

    def __call__(self) -> str:
        return self._name


def test_people_ask_all_control_planes_in_turn_and_know_who_has_answered() -> None:
    methods = [NamedMethod("one"), NamedMethod("two")]
    method = SpreadMethod("Method", methods, ["1", "2"], itertools.count())

    assert [(method(), method.asked) for _ in range(3)] == [
        ("one", "1"),
        ("two", "2"),
        ("one", "1"),
    ]


async def keep_row(database: KeptDatabase, number: int) -> list[int]:
    """Write a row, as the control plane of this number reaches the database; all rows."""
    connection = await asyncpg.connect(database.url(number))
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS kept (number int)")
        await connection.execute("INSERT INTO kept VALUES ($1)", number)
        return [row[0] for row in await connection.fetch("SELECT number FROM kept")]
    finally:
        await connection.close()


@pytest.mark.parametrize("how", ["kill", "fail_over"])
async def test_a_database_that_was_lost_comes_back_with_all_that_was_committed(how: str) -> None:
    async with asyncio.timeout(PROCESS_LIMIT_SECONDS), running_database(2) as database:
        await keep_row(database, 0)
        lost = await asyncpg.connect(database.url(0))
        before = database.pid

        await getattr(database, how)(0.0)

        assert database.pid not in {0, before}
        with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
            await lost.fetchval("SELECT 1")
        assert await keep_row(database, 1) == [0, 1]


async def test_the_connection_over_which_changes_are_heard_is_told_apart() -> None:
    async with asyncio.timeout(PROCESS_LIMIT_SECONDS), running_database(2) as database:
        listener, other = [await asyncpg.connect(database.url(0)) for _ in range(2)]
        await listener.add_listener("changes", lambda *_: None)
        [found] = database.listeners(0)
        assert database.listeners(1) == []

        database.wires[0].cut([found])

        with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
            await listener.fetchval("SELECT 1")
        assert await other.fetchval("SELECT 1") == 1
        await other.close()
