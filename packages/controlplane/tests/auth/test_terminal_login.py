# SPDX-License-Identifier: Apache-2.0
"""The sign-in of a program, without HTTP: how often it may be tried, and what is kept of it."""

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pipecd_controlplane.auth.terminal_login import TerminalLogin
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.attempts import TooManyAttemptsError
from pipecd_controlplane.usecases.in_process import InProcessState
from pipecd_controlplane.usecases.login_requests import InProcessLoginRequests
from pipecd_controlplane.usecases.shared_state import LoginRequest
from pipecd_model.errors import ConflictError, NotFoundError, UnavailableError
from pipecd_wire.pipecd.api import access_pb2

HERE = "192.0.2.1"
ELSEWHERE = "198.51.100.1"
ADA = access_pb2.Session(id="s", project_id="p", subject="ada")


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shared(tmp_path: Path, clock: Clock) -> InProcessState:
    return InProcessState(tmp_path, clock)


@pytest.fixture
def login(kept: Stores, shared: InProcessState, clock: Clock) -> TerminalLogin:
    return TerminalLogin(kept, shared, lambda: int(clock()))


async def begin(login: TerminalLogin, address: str) -> None:
    await login.begin("pipectl", address=address)


async def poll(login: TerminalLogin, address: str) -> None:
    with pytest.raises(NotFoundError, match="not good any more"):
        await login.poll("guessed", address=address)


async def guess(login: TerminalLogin, address: str) -> None:
    with pytest.raises(NotFoundError, match="there is no such code"):
        await login.find("guessed", ADA, address=address)


@pytest.mark.parametrize(
    ("attempt", "burst", "seconds"), [(begin, 100, 2), (poll, 200, 0.25), (guess, 5, 30)]
)
async def test_each_step_may_be_tried_so_often_and_then_once_in_a_while(
    login: TerminalLogin,
    clock: Clock,
    attempt: Callable[[TerminalLogin, str], Awaitable[None]],
    burst: int,
    seconds: float,
) -> None:
    for _ in range(burst):
        await attempt(login, HERE)
    with pytest.raises(TooManyAttemptsError):
        await attempt(login, HERE)
    await attempt(login, ELSEWHERE)

    clock.seconds += seconds * 1.01
    await attempt(login, HERE)
    with pytest.raises(TooManyAttemptsError):
        await attempt(login, HERE)


class TakenCodes(InProcessLoginRequests):
    """Says of the first codes that somebody else has them."""

    def __init__(self, taken: int) -> None:
        super().__init__()
        self.taken = taken
        self.tried: list[str] = []

    async def add(self, request: LoginRequest, *, network: str, seconds: float) -> None:
        self.tried.append(request.user_code)
        if len(self.tried) <= self.taken:
            raise ConflictError("the code is taken")
        await super().add(request, network=network, seconds=seconds)


async def test_a_code_that_is_taken_is_drawn_again(kept: Stores, shared: InProcessState) -> None:
    shared.login_requests = requests = TakenCodes(9)

    begun = await TerminalLogin(kept, shared, lambda: 0).begin("pipectl", address=HERE)

    assert begun.user_code == requests.tried[9]
    assert len(set(requests.tried)) == 10, "another one each time"


async def test_it_gives_up_with_a_sentence_when_all_codes_are_taken(
    kept: Stores, shared: InProcessState
) -> None:
    shared.login_requests = requests = TakenCodes(10)

    with pytest.raises(UnavailableError, match="no free code"):
        await TerminalLogin(kept, shared, lambda: 0).begin("pipectl", address=HERE)

    assert len(requests.tried) == 10


async def test_nothing_of_the_person_who_refuses_is_kept(
    login: TerminalLogin, shared: InProcessState
) -> None:
    begun = await login.begin("pipectl", address=HERE)

    await login.answer(begun.user_code, ADA, is_confirmed=False, address=ELSEWHERE)

    hashed = hashlib.sha256(begun.device_code.encode()).hexdigest()
    answered = await shared.login_requests.take(hashed)
    assert answered is not None
    assert (answered.is_refused, answered.session_id) == (True, "")
