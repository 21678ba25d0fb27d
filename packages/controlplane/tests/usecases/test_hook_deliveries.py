# SPDX-License-Identifier: Apache-2.0
"""What hooks may cost, and how long a secret counts, with clocks that the test moves."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from pipecd_controlplane.auth.caller import ApiKeyCaller
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.hook_deliveries import (
    HOOK_BURST,
    HOOK_SECONDS,
    REFUSED_BURST,
    REFUSED_SECONDS,
    Delivery,
    HookDeliveries,
    HookResponse,
)
from pipecd_controlplane.usecases.hooks import HookSettings, ToldHook
from pipecd_controlplane.usecases.in_process import InProcessState
from pipecd_controlplane.usecases.repository_hints import RepositoryHints
from pipecd_controlplane.usecases.vault import Vault
from pipecd_test_support.git_hooks import SentHook, push_as, send_as
from pipecd_wire.pipecd.api import repositories_pb2 as pb

CALLER = ApiKeyCaller(project_id="ours", key_id="key", name="ada", may_write=True)


@dataclass
class Clock:
    """Seconds, both of the wall and of the limits."""

    seconds: float = 1_700_000_000.0

    def now(self) -> int:
        return int(self.seconds)

    def tick(self) -> float:
        return self.seconds


class Desk:
    """Everything that takes hooks, without the front."""

    def __init__(self, kept: Stores, folder: Path) -> None:
        self.clock = Clock()
        shared = InProcessState(folder, self.clock.tick)
        self.settings = HookSettings(kept, Vault([b"k" * 32]), self.clock.now)
        self.deliveries = HookDeliveries(
            kept,
            self.settings,
            RepositoryHints(kept, shared.git_hints),
            shared,
            self.clock.now,
        )
        self.bodies_kept: list[bool] = []

    async def add(self, host: pb.Hook.Host.ValueType = pb.Hook.GITHUB) -> ToldHook:
        return await self.settings.add(CALLER, name="hook", host=host)

    async def send(self, hook_id: str, sent: SentHook, network: str = "192.0.2.1") -> HookResponse:
        async def read(is_kept: bool) -> bytes:
            self.bodies_kept.append(is_kept)
            return sent.body if is_kept else b""

        headers = {name.lower(): value for name, value in sent.headers.items()}
        return await self.deliveries.receive(
            Delivery(
                project_id="ours",
                hook_id=hook_id,
                headers=headers,
                network=network,
                read_body=read,
            )
        )


@pytest.fixture
def desk(kept: Stores, tmp_path: Path) -> Desk:
    return Desk(kept, tmp_path)


async def test_good_hooks_are_limited_for_each_hook_and_have_their_turn_again(desk: Desk) -> None:
    made = await desk.add()
    sent = push_as(pb.Hook.GITHUB, made.secret)

    statuses = [
        (await desk.send(made.hook.id, sent, f"192.0.2.{number % 200}")).status
        for number in range(HOOK_BURST + 1)
    ]

    assert statuses == [202] * HOOK_BURST + [429]
    limited = await desk.send(made.hook.id, sent)
    assert (limited.outcome, limited.retry_after_seconds) == ("limited", 1)
    desk.clock.seconds += HOOK_SECONDS
    assert (await desk.send(made.hook.id, sent)).status == 202


async def test_forged_hooks_are_limited_for_each_sender(desk: Desk) -> None:
    made = await desk.add()
    forged, good = push_as(pb.Hook.GITHUB, "wrong"), push_as(pb.Hook.GITHUB, made.secret)

    for target in (made.hook.id, "none"):
        statuses = [(await desk.send(target, forged)).status for _ in range(REFUSED_BURST + 1)]
        assert statuses == [401] * REFUSED_BURST + [429], target
    assert (await desk.send(made.hook.id, good, "192.0.2.2")).status == 202
    desk.clock.seconds += REFUSED_SECONDS
    assert (await desk.send(made.hook.id, good)).status == 202


async def test_good_hooks_do_not_use_up_what_forged_ones_may(desk: Desk) -> None:
    made = await desk.add()
    good = push_as(pb.Hook.GITHUB, made.secret)

    for _ in range(2 * REFUSED_BURST):
        assert (await desk.send(made.hook.id, good)).status == 202


async def test_the_body_for_a_hook_that_there_is_not_is_not_kept(desk: Desk) -> None:
    """Strangers must not fill the memory."""
    await desk.send("none", push_as(pb.Hook.GITHUB, "wrong"))

    assert desk.bodies_kept == [False]


async def test_the_older_secret_ends_by_itself(desk: Desk) -> None:
    made = await desk.add()
    rotated = await desk.settings.rotate(CALLER, made.hook.id, timedelta(hours=2))
    assert rotated.hook.older_secret_until == desk.clock.now() + 7200
    sent = push_as(pb.Hook.GITHUB, made.secret)

    desk.clock.seconds += 7199
    assert (await desk.send(made.hook.id, sent)).status == 202
    desk.clock.seconds += 1
    assert (await desk.send(made.hook.id, sent)).status == 401
    (listed,) = await desk.settings.list_all("ours")
    assert listed.older_secret_until == 0
    assert (await desk.send(made.hook.id, push_as(pb.Hook.GITHUB, rotated.secret))).status == 202


async def test_the_one_before_the_older_secret_counts_no_more(desk: Desk) -> None:
    made = await desk.add()
    for _ in range(2):
        await desk.settings.rotate(CALLER, made.hook.id)

    assert (await desk.send(made.hook.id, push_as(pb.Hook.GITHUB, made.secret))).status == 401


async def test_a_generic_hook_that_is_replayed_later_is_refused(desk: Desk) -> None:
    made = await desk.add(pb.Hook.GENERIC)
    body = b'{"repository": "https://example.com/a/b"}'
    sent = send_as(pb.Hook.GENERIC, made.secret, body, at=desk.clock.now())

    assert (await desk.send(made.hook.id, sent)).status == 202
    desk.clock.seconds += 301
    assert (await desk.send(made.hook.id, sent)).status == 401


async def test_uses_are_written_down_once_a_minute(desk: Desk, kept: Stores) -> None:
    made = await desk.add()
    sent = push_as(pb.Hook.GITHUB, made.secret)
    begun = desk.clock.now()
    seen = []
    for _ in range(3):
        await desk.send(made.hook.id, sent)
        stored = await kept.hooks.get("ours", made.hook.id)
        seen.append(stored.hook.last_accepted_at - begun)
        desk.clock.seconds += 40

    assert seen == [0, 0, 80]


async def test_a_secret_whose_key_is_lost_refuses_and_keeps_nothing_else_from_working(
    desk: Desk, kept: Stores
) -> None:
    made = await desk.add()
    other = HookSettings(kept, Vault([b"x" * 32]), desk.clock.now)

    assert await other.close_anew() == 0
    stored = await kept.hooks.get("ours", made.hook.id)
    assert stored.secret
    rotated = await other.rotate(CALLER, made.hook.id)
    assert rotated.secret != made.secret
