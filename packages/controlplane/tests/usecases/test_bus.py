# SPDX-License-Identifier: Apache-2.0
"""Who listens hears of everything, once per thing, and is let go when the server stops."""

import asyncio
from typing import Any

import pytest

from pipecd_controlplane.store.changes import Change, ChangeKind, piped_topic, project_topic, topic
from pipecd_controlplane.usecases.bus import Bus
from pipecd_model.errors import UnavailableError
from pipecd_test_support.waiting import Soon


def change(thing_id: str = "d1", **fields: Any) -> Change:
    defaults = {"kind": ChangeKind.DEPLOYMENT, "project_id": "ours", "piped_id": "piped"}
    return Change(id=thing_id, **{**defaults, **fields})


async def test_a_change_reaches_those_who_listen_to_it(soon: Soon) -> None:
    bus = Bus()
    topics = (topic(ChangeKind.DEPLOYMENT, "d1"), project_topic("ours"), piped_topic("piped"))
    for each in topics:
        with bus.listen(each) as listener:
            bus.publish([change()])
            assert await soon(listener.wait_changes()) == [change()]


async def test_a_change_does_not_reach_others() -> None:
    bus = Bus()
    topics = (
        topic(ChangeKind.DEPLOYMENT, "d2"),
        topic(ChangeKind.APPLICATION, "d1"),
        project_topic("x"),
    )
    with bus.listen(*topics) as listener:
        bus.publish([change()])

        assert await listener.wait_changes(seconds=0.01) == []


async def test_many_changes_of_one_thing_are_heard_as_one(soon: Soon) -> None:
    """A slow listener costs the memory of the things, not of their changes."""
    bus = Bus()
    with bus.listen(project_topic("ours"), piped_topic("piped")) as listener:
        bus.publish([change("d1"), change("d2")])
        bus.publish([change("d1")] * 1000)

        assert await soon(listener.wait_changes()) == [change("d1"), change("d2")]
        assert await listener.wait_changes(seconds=0.01) == []


async def test_a_waiting_listener_is_woken(soon: Soon) -> None:
    bus = Bus()
    with bus.listen(project_topic("ours")) as listener:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(soon(listener.wait_changes()))
            await asyncio.sleep(0)
            bus.publish([change()])

    assert waiting.result() == [change()]


async def test_stopping_ends_every_wait(soon: Soon) -> None:
    bus = Bus()
    with bus.listen(project_topic("ours")) as listener:
        bus.stop()

        with pytest.raises(UnavailableError, match="stopping"):
            await soon(listener.wait_changes())


async def test_who_begins_to_listen_while_it_stops_is_let_go(soon: Soon) -> None:
    bus = Bus()
    bus.stop()
    with bus.listen(project_topic("ours")) as listener, pytest.raises(UnavailableError):
        await soon(listener.wait_changes())


async def test_who_has_left_is_forgotten() -> None:
    bus = Bus()
    with bus.listen(project_topic("ours")):
        pass

    assert not bus._listeners
