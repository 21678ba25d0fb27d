# SPDX-License-Identifier: Apache-2.0
"""Whatever instances do and whenever they do it, no two of them may work at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipecd_controlplane.store.leases import LeaseRecords
from pipecd_controlplane.store.open import open_database
from pipecd_controlplane.usecases.leases import Instance, Leases, LeaseTimes
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model.errors import StateError
from pipecd_test_support.chosen_store import count_examples, temporary_database
from pipecd_wire.pipecd.push import push_pb2 as pb

AGENT = Agent(project_id="ours", piped_id="piped")
TIMES = LeaseTimes(lease=60, take_over=600)
INSTANCES = ("a", "b", "c")

# Weighted so that short runs often come to what matters: one asks while another holds.
DOINGS = ("ask", "ask", "wait", "renew", "renew", "release", "report", "crash", "restart")

STEPS = st.lists(
    st.tuples(
        st.sampled_from(DOINGS),
        st.sampled_from(INSTANCES),
        st.sampled_from([0, 0, 20, 59, 61, 300, 700]),
    ),
    min_size=10,
    max_size=40,
)
"""What happens, to whom, and how many seconds pass before it."""


@dataclass
class Process:
    """An instance as it sees itself: it may work while its last answered call is young enough."""

    folder: str
    life: int = 0
    epoch: int = 0
    heard_at: float | None = None
    begun_from: float = 0.0

    @property
    def id(self) -> str:
        return f"{self.folder}{self.life}"

    def instance(self) -> Instance:
        return Instance(agent=AGENT, instance_id=self.id, data_folder_id=self.folder)

    def told(self, lease: pb.Lease, now: float) -> None:
        if not lease.held:
            self.heard_at = None
            return
        self.epoch, self.heard_at = lease.epoch, now
        self.begun_from = now + lease.begun_after.ToTimedelta().total_seconds()

    def may_start(self, now: float) -> bool:
        return self.heard_at is not None and now - self.heard_at < TIMES.lease

    def may_go_on(self, now: float) -> bool:
        return self.heard_at is not None and now - self.heard_at < TIMES.take_over

    def may_take_over(self, now: float) -> bool:
        return self.may_start(now) and now >= self.begun_from


@dataclass
class World:
    """The control plane, its agents, and the one time that all of them live in."""

    records: LeaseRecords
    now: float = 0.0
    offset: float = 0.0
    """How much the control plane's clock differs: each of its processes has another one."""
    processes: dict[str, Process] = field(
        default_factory=lambda: {n: Process(n) for n in INSTANCES}
    )
    epochs: list[int] = field(default_factory=list)
    leases: Leases = field(init=False)

    def start(self) -> None:
        self.leases = Leases(self.records, TIMES, lambda: self.now + self.offset)

    async def do(self, doing: str, who: str) -> None:
        if doing == "restart":
            self.offset += 1000  # a clock of its own
            self.start()
        else:
            await self.act(doing, self.processes[who])

    async def act(self, doing: str, process: Process) -> None:
        match doing:
            case "ask":
                process.told(await self.leases.acquire(process.instance()), self.now)
            case "wait" if process.heard_at is None:
                process.told(await self.leases.acquire_after_wait(process.instance()), self.now)
            case "renew" if process.epoch:
                try:
                    process.told(
                        await self.leases.renew(AGENT, process.id, process.epoch), self.now
                    )
                except StateError:
                    process.heard_at = None
            case "release" if process.epoch:
                process.heard_at = None
                await self.leases.release(AGENT, process.id, process.epoch)
            case "report" if process.epoch:
                reports = Agent(project_id="ours", piped_id="piped", lease_epoch=process.epoch)
                try:
                    await self.leases.check_epoch(reports)
                except StateError:
                    process.heard_at = None
            case "crash":
                self.processes[process.folder] = Process(process.folder, process.life + 1)

    async def check(self) -> None:
        epoch = (await self.records.get("ours", "piped")).epoch
        self.epochs.append(epoch)
        assert self.epochs == sorted(self.epochs)
        all_of_them = list(self.processes.values())
        assert len([p for p in all_of_them if p.may_start(self.now)]) <= 1
        for process in all_of_them:
            if process.may_take_over(self.now):
                others = [p for p in all_of_them if p is not process and p.may_go_on(self.now)]
                assert not others, "both would go on with the same deployment"


@asynccontextmanager
async def fresh_world() -> AsyncIterator[World]:
    with temporary_database() as config:
        async with open_database(config, on_commit=lambda _changes: None) as database:
            world = World(LeaseRecords(database))
            world.start()
            yield world


def test_no_two_instances_may_work_at_once(store_kind: str) -> None:
    async def play(steps: list[tuple[str, str, int]]) -> None:
        async with fresh_world() as world:
            for doing, who, seconds in steps:
                world.now += seconds
                await world.check()
                await world.do(doing, who)
                await world.check()

    quiet = [HealthCheck.too_slow]

    @settings(max_examples=count_examples(60), deadline=None, suppress_health_check=quiet)
    @given(STEPS)
    def check(steps: list[tuple[str, str, int]]) -> None:
        asyncio.run(play(steps))

    check()
