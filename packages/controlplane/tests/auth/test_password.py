# SPDX-License-Identifier: Apache-2.0
"""Each limit of signing in with a password, alone."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import bcrypt
import pytest

from pipecd_controlplane.auth.addresses import network
from pipecd_controlplane.auth.password import NOBODY, AttemptPace, PasswordSignIn, SignInPaces
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.attempts import TooManyAttemptsError
from pipecd_controlplane.usecases.familiar import (
    MOST_ACCOUNTS,
    MOST_NETWORKS,
    InProcessFamiliarNetworks,
)
from pipecd_controlplane.usecases.in_process import InProcessState
from pipecd_controlplane.usecases.keys import hash_of, quick_hash
from pipecd_controlplane.usecases.sessions import UserIdentity
from pipecd_model.errors import UnauthenticatedError
from pipecd_wire.model import project_pb2
from pipecd_wire.pipecd.api import access_pb2

RIGHT, WRONG = "correct horse", "wrong"
NO_LIMIT = AttemptPace(burst=10**6, seconds=1)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


Try = Callable[..., Awaitable[str]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def sign_in_with(kept: Stores, clock: Clock, tmp_path: Path) -> Callable[..., Try]:
    """`try_ = sign_in_with(account=…)`: one with only these limits, for two projects.

    The hashes are quick ones: what is counted does not depend on their cost.
    """
    for project_id in ("shop", "other"):
        project = project_pb2.Project(id=project_id, created_at=1, updated_at=1)
        project.static_admin.username = "boss"
        project.static_admin.password_hash = quick_hash(RIGHT)

        async def work(transaction: Transaction, project: project_pb2.Project = project) -> None:
            await kept.projects.add_in(transaction, project)

        await kept.database.write(work)

    def make(**paces: AttemptPace) -> Try:
        limits = {"address": NO_LIMIT, "account_here": NO_LIMIT, "account": NO_LIMIT, **paces}
        sign_in = PasswordSignIn(kept, InProcessState(tmp_path, clock), SignInPaces(**limits))

        async def attempt(
            address: str, password: str = WRONG, *, project: str = "shop", username: str = "boss"
        ) -> str:
            try:
                await sign_in.sign_in(project, username, password, address=address)
            except TooManyAttemptsError:
                return "too many"
            except UnauthenticatedError:
                return "wrong"
            return "in"

        return attempt

    return make


async def test_an_address_is_locked_for_all_accounts(
    sign_in_with: Callable[..., Try], clock: Clock
) -> None:
    attempt = sign_in_with(address=AttemptPace(burst=3, seconds=10))
    tried = [await attempt("10.0.0.1", username=f"user {number}") for number in range(4)]
    assert tried == ["wrong", "wrong", "wrong", "too many"]

    assert await attempt("10.0.0.1", RIGHT) == "too many"
    assert await attempt("10.0.0.2", RIGHT) == "in"
    clock.now = 10
    assert await attempt("10.0.0.1", RIGHT) == "in"


async def test_an_account_is_locked_for_the_address_that_fails_and_no_other(
    sign_in_with: Callable[..., Try], clock: Clock
) -> None:
    attempt = sign_in_with(account_here=AttemptPace(burst=3, seconds=10))
    tried = [await attempt("10.0.0.1") for _ in range(500)]
    assert tried[:4] == ["wrong", "wrong", "wrong", "too many"]
    assert set(tried[4:]) == {"too many"}

    assert await attempt("10.0.0.1", RIGHT) == "too many"
    assert await attempt("10.0.0.1", RIGHT, project="other") == "in"
    assert await attempt("10.0.0.2", RIGHT) == "in"
    clock.now = 10
    assert await attempt("10.0.0.1", RIGHT) == "in"


async def test_one_address_alone_locks_nobody_else_out(sign_in_with: Callable[..., Try]) -> None:
    """With the limits that count; the attempts that its own limit refuses use up nothing."""
    paces = SignInPaces()
    attempt = sign_in_with(
        address=paces.address, account_here=paces.account_here, account=paces.account
    )
    for _ in range(1000):
        await attempt("10.0.0.1")

    assert await attempt("10.0.0.1", RIGHT) == "too many"
    assert await attempt("10.0.0.2", RIGHT) == "in"


async def test_guesses_from_many_addresses_are_slowed_together(
    sign_in_with: Callable[..., Try], clock: Clock
) -> None:
    attempt = sign_in_with(account=AttemptPace(burst=5, seconds=10))
    tried = [await attempt(f"10.0.0.{number}") for number in range(7)]
    assert tried == ["wrong"] * 5 + ["too many"] * 2

    assert await attempt("10.0.1.1", RIGHT) == "too many"
    assert await attempt("10.0.1.1", RIGHT, project="other") == "in"
    clock.now = 10
    assert await attempt("10.0.1.1", RIGHT) == "in"


async def test_where_the_account_was_signed_in_from_it_can_be_again(
    sign_in_with: Callable[..., Try],
) -> None:
    attempt = sign_in_with(
        address=AttemptPace(burst=5, seconds=10), account=AttemptPace(burst=5, seconds=10)
    )
    assert await attempt("10.0.0.1", RIGHT) == "in"
    for number in range(20):
        await attempt(f"10.0.1.{number}")  # somebody guesses from everywhere
        await attempt("10.0.0.1", username=f"user {number}")  # and somebody from the same place

    assert await attempt("10.0.0.1", RIGHT) == "in"
    assert await attempt("10.0.0.1", RIGHT, project="other") == "too many"
    assert await attempt("10.0.2.1", RIGHT) == "too many"


async def test_where_it_was_signed_in_from_guesses_are_limited_too(
    sign_in_with: Callable[..., Try],
) -> None:
    attempt = sign_in_with(account_here=AttemptPace(burst=3, seconds=10))
    assert await attempt("10.0.0.1", RIGHT) == "in"

    tried = [await attempt("10.0.0.1") for _ in range(4)]

    assert tried == ["wrong", "wrong", "wrong", "too many"]


async def test_success_gives_back_what_was_used_here(sign_in_with: Callable[..., Try]) -> None:
    attempt = sign_in_with(account_here=AttemptPace(burst=3, seconds=10))
    for _ in range(5):
        assert await attempt("10.0.0.1") == "wrong"
        assert await attempt("10.0.0.1") == "wrong"
        assert await attempt("10.0.0.1", RIGHT) == "in"


async def test_success_at_ones_own_account_does_not_pay_for_guesses_at_others(
    sign_in_with: Callable[..., Try],
) -> None:
    attempt = sign_in_with(address=AttemptPace(burst=4, seconds=1000))
    tried = []
    for _ in range(5):
        tried.append(await attempt("10.0.0.1"))
        assert await attempt("10.0.0.1", RIGHT, project="other") == "in"

    assert tried == ["wrong"] * 4 + ["too many"]


async def test_signing_in_again_and_again_locks_nobody(sign_in_with: Callable[..., Try]) -> None:
    tight = AttemptPace(burst=2, seconds=1000)
    attempt = sign_in_with(address=tight, account_here=tight, account=tight)

    assert {await attempt("10.0.0.1", RIGHT) for _ in range(20)} == {"in"}


async def test_made_up_names_leave_the_counters_of_real_ones(
    sign_in_with: Callable[..., Try],
) -> None:
    attempt = sign_in_with(account_here=AttemptPace(burst=3, seconds=10**6), account=NO_LIMIT)
    for _ in range(3):
        await attempt("10.0.0.1")

    for number in range(10_050):
        await attempt(f"10.1.{number % 250}.1", username=f"made up {number}")

    assert await attempt("10.0.0.1", RIGHT) == "too many"


async def test_addresses_of_one_ipv6_network_are_one(sign_in_with: Callable[..., Try]) -> None:
    attempt = sign_in_with(account_here=AttemptPace(burst=3, seconds=10))
    tried = [await attempt(f"2001:db8:1:1::{number:x}") for number in range(1, 5)]

    assert tried == ["wrong", "wrong", "wrong", "too many"]
    assert await attempt("2001:db8:1:2::1", RIGHT) == "in"


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:1:aaaa::1", "2001:db8:1:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_what_one_party_can_choose_is_one(address: str, counted: str) -> None:
    assert network(address) == counted


async def test_what_is_remembered_of_sign_ins_is_bounded_and_tells_no_address() -> None:
    familiar = InProcessFamiliarNetworks()
    for number in range(MOST_NETWORKS + 1):
        await familiar.add("account", f"10.0.0.{number}")
    assert not await familiar.has("account", "10.0.0.0")
    assert await familiar.has("account", "10.0.0.1")
    assert not await familiar.has("another", "10.0.0.1")

    for number in range(MOST_ACCOUNTS):
        await familiar.add(f"account {number}", "10.0.0.1")
    assert not await familiar.has("account", "10.0.0.1")
    assert len(familiar._accounts) == MOST_ACCOUNTS
    assert b"10.0.0" not in repr(familiar._accounts).encode()


async def test_success_gives_back_the_attempt_at_the_account(
    sign_in_with: Callable[..., Try],
) -> None:
    attempt = sign_in_with(account=AttemptPace(burst=2, seconds=1000))

    assert {await attempt(f"10.0.0.{number}", RIGHT) for number in range(20)} == {"in"}


async def test_success_does_not_forgive_guesses_at_the_account_from_elsewhere(
    sign_in_with: Callable[..., Try],
) -> None:
    attempt = sign_in_with(account=AttemptPace(burst=2, seconds=1000))
    assert await attempt("10.0.0.1") == "wrong"
    assert await attempt("10.0.0.2", RIGHT) == "in"
    assert await attempt("10.0.0.3") == "wrong"

    assert await attempt("10.0.0.4") == "too many"


async def test_success_forgets_the_guesses_at_the_account_from_the_same_address(
    sign_in_with: Callable[..., Try],
) -> None:
    """Also once the address is not known any more as one that the account is used from."""
    attempt = sign_in_with(account_here=AttemptPace(burst=3, seconds=10**6))
    assert [await attempt("10.0.0.1") for _ in range(2)] == ["wrong", "wrong"]
    assert await attempt("10.0.0.1", RIGHT) == "in"
    for number in range(MOST_NETWORKS):
        assert await attempt(f"10.0.1.{number}", RIGHT) == "in"

    tried = [await attempt("10.0.0.1") for _ in range(4)]

    assert tried == ["wrong", "wrong", "wrong", "too many"]


async def test_the_narrowest_limit_says_how_long_to_wait(
    kept: Stores, clock: Clock, tmp_path: Path
) -> None:
    paces = SignInPaces(
        address=NO_LIMIT, account_here=AttemptPace(burst=1, seconds=30), account=NO_LIMIT
    )
    sign_in = PasswordSignIn(kept, InProcessState(tmp_path, clock), paces)
    with pytest.raises(UnauthenticatedError):
        await sign_in.sign_in("shop", "boss", WRONG, address="10.0.0.1")

    with pytest.raises(TooManyAttemptsError) as caught:
        await sign_in.sign_in("shop", "boss", WRONG, address="10.0.0.1")

    assert caught.value.hint == "try again in 30 seconds"


@pytest.mark.parametrize(
    ("attempts", "burst", "seconds"),
    [
        ([("10.0.0.1", f"user {number}") for number in range(200)], 100, 1),
        ([("10.0.0.1", "boss")] * 200, 10, 30),
        ([(f"10.0.{number}.1", "boss") for number in range(200)], 100, 5),
    ],
    ids=["one address, many accounts", "one address, one account", "many addresses, one account"],
)
async def test_how_often_it_may_be_tried_unless_somebody_says_otherwise(
    sign_in_with: Callable[..., Try],
    clock: Clock,
    attempts: list[tuple[str, str]],
    burst: int,
    seconds: int,
) -> None:
    paces = SignInPaces()
    attempt = sign_in_with(
        address=paces.address, account_here=paces.account_here, account=paces.account
    )
    waiting = iter(attempts)

    async def count_until_refused() -> int:
        for number, (address, username) in enumerate(waiting):
            if await attempt(address, username=username) == "too many":
                return number
        pytest.fail("none was refused")

    assert await count_until_refused() == burst
    clock.now = seconds - 0.5
    assert await count_until_refused() == 0
    clock.now = seconds
    assert await count_until_refused() == 1


async def test_who_signed_in_is_the_static_admin(
    sign_in_with: Callable[..., Try], kept: Stores, tmp_path: Path
) -> None:
    sign_in_with()
    sign_in = PasswordSignIn(kept, InProcessState(tmp_path))

    identity = await sign_in.sign_in("shop", "boss", RIGHT, address="10.0.0.1")

    assert identity == UserIdentity(
        subject="boss", via=access_pb2.Session.STATIC_ADMIN, roles=("Admin",)
    )


async def test_every_refusal_costs_one_comparison_with_a_hash_of_the_same_cost(
    kept: Stores, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody learns from the time that passes which of them it was."""
    hashed = await hash_of(RIGHT)
    admins = {
        "shop": project_pb2.ProjectStaticUser(username="boss", password_hash=hashed),
        "off": project_pb2.ProjectStaticUser(username="boss", password_hash=hashed),
        "without": project_pb2.ProjectStaticUser(),
    }
    for project_id, admin in admins.items():
        project = project_pb2.Project(id=project_id, static_admin=admin, created_at=1, updated_at=1)
        project.static_admin_disabled = project_id == "off"

        async def work(transaction: Transaction, project: project_pb2.Project = project) -> None:
            await kept.projects.add_in(transaction, project)

        await kept.database.write(work)
    costs: list[str] = []
    compare = bcrypt.checkpw

    def noted(password: bytes, kept_hash: bytes) -> bool:
        costs.append(kept_hash[:7].decode())
        return compare(password, kept_hash)

    monkeypatch.setattr(bcrypt, "checkpw", noted)
    sign_in = PasswordSignIn(kept, InProcessState(tmp_path, clock))

    refused = [
        ("shop", "boss", WRONG),
        ("shop", "somebody", RIGHT),
        ("off", "boss", RIGHT),
        ("without", "boss", RIGHT),
        ("without", "", ""),
        ("unknown", "boss", RIGHT),
        ("unknown", "", "nobody"),
    ]
    for project_id, username, password in refused:
        with pytest.raises(UnauthenticatedError, match=r"^wrong project, user name or password$"):
            await sign_in.sign_in(project_id, username, password, address="10.0.0.1")

    assert costs == [NOBODY[:7]] * len(refused)
    assert (await sign_in.sign_in("shop", "boss", RIGHT, address="10.0.0.1")).subject == "boss"
