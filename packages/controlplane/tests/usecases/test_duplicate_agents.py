# SPDX-License-Identifier: Apache-2.0
"""Two agents that hold no lease under one piped id raise an alarm; one that moves does not."""

from dataclasses import dataclass

import pytest

from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.duplicate_agents import (
    WINDOW_SECONDS,
    DuplicateAgents,
    parse_process_start,
)
from pipecd_controlplane.usecases.in_process import InProcessSightings
from pipecd_controlplane.usecases.ownership import Agent


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def agent(peer: str, *, epoch: int | None = None) -> Agent:
    return Agent(project_id="ours", piped_id="piped", peer=peer, lease_epoch=epoch)


async def alarms(kept: Stores) -> list[str]:
    return (await kept.alarms.list_by_project("ours", since=0)).get("piped", [])


async def test_an_agent_that_reports_again_after_another_did_is_an_alarm(kept: Stores) -> None:
    duplicates = DuplicateAgents(kept.alarms, InProcessSightings(Clock()))
    await duplicates.note(agent("10.0.0.1"), "ReportStat")
    await duplicates.note(agent("10.0.0.2"), "ReportStat")
    assert await alarms(kept) == []

    await duplicates.note(agent("10.0.0.1"), "ReportStat")

    [alarm] = await alarms(kept)
    assert alarm == (
        "two agents report under this piped id at once, from 10.0.0.1 and 10.0.0.2:"
        " stop one of them, or register a piped of its own for it"
    )
    assert await kept.alarms.list_by_project("theirs", since=0) == {}


async def test_an_agent_that_moves_from_place_to_place_is_none(kept: Stores) -> None:
    duplicates = DuplicateAgents(kept.alarms, InProcessSightings(Clock()))
    for peer in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3"):
        await duplicates.note(agent(peer), "ReportStat")

    assert await alarms(kept) == []


async def test_an_address_that_comes_back_much_later_is_none(kept: Stores) -> None:
    clock = Clock()
    duplicates = DuplicateAgents(kept.alarms, InProcessSightings(clock))
    await duplicates.note(agent("10.0.0.1"), "ReportStat")
    await duplicates.note(agent("10.0.0.2"), "ReportStat")
    clock.now += WINDOW_SECONDS
    await duplicates.note(agent("10.0.0.1"), "ReportStat")

    assert await alarms(kept) == []


async def test_two_processes_on_one_machine_are_told_apart(kept: Stores) -> None:
    duplicates = DuplicateAgents(kept.alarms, InProcessSightings(Clock()))
    for started in ("1.7e+09", "1.8e+09", "1.7e+09"):
        await duplicates.note(agent("10.0.0.1"), "ReportStat", started)

    [alarm] = await alarms(kept)
    assert "from 10.0.0.1:" in alarm


async def test_one_process_behind_several_addresses_is_none(kept: Stores) -> None:
    duplicates = DuplicateAgents(kept.alarms, InProcessSightings(Clock()))
    for peer in ("10.0.0.1", "10.0.0.2", "10.0.0.1"):
        await duplicates.note(agent(peer), "ReportStat", "1.7e+09")

    assert await alarms(kept) == []


async def test_agents_with_a_lease_are_kept_apart_by_it(kept: Stores) -> None:
    duplicates = DuplicateAgents(kept.alarms, InProcessSightings(Clock()))
    for epoch, peer in ((1, "10.0.0.1"), (2, "10.0.0.2"), (1, "10.0.0.1")):
        await duplicates.note(agent(peer, epoch=epoch), "ReportStat")

    assert await alarms(kept) == []


async def test_an_agent_without_a_lease_beside_one_that_has_it_is_an_alarm(kept: Stores) -> None:
    duplicates = DuplicateAgents(kept.alarms, InProcessSightings(Clock()))
    await duplicates.note(agent("10.0.0.1", epoch=3), "ReportStat")
    await duplicates.note(agent("10.0.0.2"), "ReportStat")
    assert await alarms(kept) == []

    await duplicates.note(agent("10.0.0.1", epoch=3), "ReportStat")

    [alarm] = await alarms(kept)
    assert "from 10.0.0.1 and 10.0.0.2:" in alarm


async def test_an_agent_without_a_lease_that_is_replaced_by_one_with_it_is_none(
    kept: Stores,
) -> None:
    duplicates = DuplicateAgents(kept.alarms, InProcessSightings(Clock()))
    for epoch in (None, 3, 3, 4):
        await duplicates.note(agent("10.0.0.1", epoch=epoch), "ReportStat")

    assert await alarms(kept) == []


async def test_an_agent_that_comes_back_under_a_new_lease_is_none(kept: Stores) -> None:
    """Python, then Go for a while, then Python again."""
    duplicates = DuplicateAgents(kept.alarms, InProcessSightings(Clock()))
    for epoch, peer in ((3, "10.0.0.1"), (None, "10.0.0.2"), (4, "10.0.0.1")):
        await duplicates.note(agent(peer, epoch=epoch), "ReportStat")

    assert await alarms(kept) == []


async def test_an_agent_that_waits_for_the_lease_is_none(kept: Stores) -> None:
    duplicates = DuplicateAgents(kept.alarms, InProcessSightings(Clock()))
    for peer in ("10.0.0.1", "10.0.0.2", "10.0.0.1"):
        await duplicates.note(agent(peer, epoch=0), "ReportPipedMeta")

    assert await alarms(kept) == []


@pytest.mark.parametrize(
    ("metrics", "found"),
    [
        (b"# HELP x\nprocess_start_time_seconds 1.70000012e+09\nup 1\n", "1.70000012e+09"),
        (b'process_start_time_seconds{a="b"} 17\n', "17"),
        (b"process_start_time_seconds_total 17\n", ""),
        (b"\xff\xfe", ""),
        (b"", ""),
    ],
)
def test_a_go_agent_says_in_its_metrics_when_it_was_started(metrics: bytes, found: str) -> None:
    assert parse_process_start(metrics) == found
