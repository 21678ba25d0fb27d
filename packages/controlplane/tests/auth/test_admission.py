# SPDX-License-Identifier: Apache-2.0
"""What decides who may call, at the authenticator alone: each kind of caller, each refusal."""

from pathlib import Path

import bcrypt
import pytest

from pipecd_controlplane.api.v1.telemetry import SERVICE as TRACE_SERVICE
from pipecd_controlplane.auth import calls
from pipecd_controlplane.auth.call_authenticator import CallAuthenticator
from pipecd_controlplane.auth.caller import Agent, ApiKeyCaller, Person
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import sessions
from pipecd_controlplane.usecases.attempts import TooManyAttemptsError
from pipecd_controlplane.usecases.in_process import InProcessState
from pipecd_controlplane.usecases.keys import quick_hash
from pipecd_controlplane.usecases.leases import Instance, Leases
from pipecd_model.errors import ConfigError, DeniedError, StateError, UnauthenticatedError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.headers import IDEMPOTENCY_KEY_HEADER, LEASE_EPOCH_HEADER
from pipecd_wire.model import apikey_pb2, piped_pb2, project_pb2
from pipecd_wire.pipecd.api import access_pb2, api_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import PEER, Method
from pipecd_wire.rpc.handlers import describe
from pipecd_wire.webservice import service_pb2 as webservice

NOW = 1_000


def method(file: object, service: str, name: str) -> Method:
    return describe(file.DESCRIPTOR.services_by_name[service].methods_by_name[name])  # type: ignore[attr-defined]


REPORT_STAT = method(pipedservice, "PipedService", "ReportStat")
LIST_OF_PIPED = method(pipedservice, "PipedService", "ListApplications")
"""Needs no lease."""
LIST = method(apiservice, "APIService", "ListApplications")
REGISTER = method(apiservice, "APIService", "RegisterPiped")
GET_ME = method(webservice, "WebService", "GetMe")
LIST_PIPEDS = method(api_pb2, "PipedService", "ListPipeds")
"""For sessions and API keys."""
EXPORT = describe(TRACE_SERVICE.methods[0])


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Admission:
    """The authenticator over a store with one project `ours`, a piped and as many keys as asked."""

    def __init__(self, kept: Stores, folder: Path) -> None:
        self.kept = kept
        self.clock = Clock()
        self.now = NOW
        self.shared = InProcessState(folder, self.clock)
        self.leases = Leases(kept.leases)
        self.refused: list[tuple[str, str]] = []
        self.authenticator = CallAuthenticator(
            kept,
            self.leases,
            self.shared,
            lambda: self.now,
            lambda method, caller: self.refused.append((method.name, calls.name(caller))),
        )

    async def admit(
        self, method: Method, authorization: str = "", **metadata: str
    ) -> Agent | ApiKeyCaller | Person:
        given = {key.replace("_", "-"): value for key, value in metadata.items()}
        return await self.authenticator.admit(method, {"authorization": authorization, **given})

    async def add_key(
        self,
        key: str,
        *,
        role: apikey_pb2.APIKey.Role.ValueType = apikey_pb2.APIKey.READ_WRITE,
        expires_at: int = 0,
        disabled: bool = False,
        slow: bool = False,
    ) -> None:
        key_id = key.partition(".")[0]
        record = apikey_pb2.APIKey(
            id=key_id,
            name=f"key {key_id}",
            key_hash=slow_hash(key) if slow else quick_hash(key),
            project_id="ours",
            role=role,
            creator="test",
            disabled=disabled,
            created_at=1,
            updated_at=1,
        )
        await self.kept.api_keys.add(record)

        async def work(transaction: Transaction) -> None:
            await self.kept.api_key_facts.add_in(transaction, "ours", key_id, expires_at=expires_at)

        await self.kept.database.write(work)

    async def add_piped(self, piped_id: str, key: str, *, slow: bool = False) -> None:
        hashed = slow_hash(key) if slow else quick_hash(key)
        keys = [piped_pb2.PipedKey(hash=hashed, creator="test", created_at=1)]
        await self.kept.pipeds.add(MessageBuilder().piped(id=piped_id, keys=keys))

    async def sign_in(self) -> str:
        """Returns the cookie of an admin."""
        identity = sessions.UserIdentity(
            subject="ada", via=access_pb2.Session.STATIC_ADMIN, roles=("Admin",)
        )
        token = await sessions.start(self.kept, "ours", identity, now=lambda: NOW)
        return f"token={token}"


def slow_hash(key: str) -> str:
    """The kind that is compared at a price, at its lowest price."""
    return bcrypt.hashpw(key.encode(), bcrypt.gensalt(4)).decode()


@pytest.fixture
async def admission(kept: Stores, tmp_path: Path) -> Admission:
    async def work(transaction: Transaction) -> None:
        project = project_pb2.Project(id="ours", created_at=1, updated_at=1)
        await kept.projects.add_in(transaction, project)

    await kept.database.write(work)
    made = Admission(kept, tmp_path)
    await made.add_piped("piped", "secret")
    return made


async def test_a_piped_is_who_its_token_says_and_the_call_is_noted_as_its_own(
    admission: Admission,
) -> None:
    caller = await admission.authenticator.admit(
        REPORT_STAT, {"authorization": "PIPED-TOKEN ours,piped,secret", PEER: "10.0.0.1"}
    )

    assert caller == Agent(project_id="ours", piped_id="piped", peer="10.0.0.1", lease_epoch=None)
    call = calls.current()
    assert call is not None
    assert (call.project_id, call.caller, call.peer) == ("ours", "piped:piped", "10.0.0.1")


@pytest.mark.parametrize(
    ("credential", "says"),
    [
        ("ours,piped,wrong", "unknown piped or wrong piped key"),
        ("ours,nobody,secret", "unknown piped or wrong piped key"),
        ("theirs,piped,secret", "unknown piped or wrong piped key"),
        ("ours,piped", "the credential is malformed"),
        ("ours,piped,secret,more", "the credential is malformed"),
        ("ours,,secret", "the credential is malformed"),
        (" ours,piped,secret", "the credential is malformed"),
        ("ours,piped,secret ", "the credential is malformed"),
        ("", "the credential is malformed"),
    ],
)
async def test_another_token_is_refused_and_says_what_is_wrong_with_it(
    admission: Admission, credential: str, says: str
) -> None:
    with pytest.raises(UnauthenticatedError, match=f"^{says}"):
        await admission.admit(LIST_OF_PIPED, f"PIPED-TOKEN {credential}")


async def test_an_exporter_of_traces_may_call_its_token_bearer_and_nobody_else(
    admission: Admission,
) -> None:
    for scheme in ("Bearer", "PIPED-TOKEN"):
        caller = await admission.admit(EXPORT, f"{scheme} ours,piped,secret")
        assert isinstance(caller, Agent)

    with pytest.raises(UnauthenticatedError, match=r"^Export needs a piped token"):
        await admission.admit(EXPORT, "API-KEY key.secret")
    with pytest.raises(UnauthenticatedError, match=r"^ReportStat needs a piped token"):
        await admission.admit(REPORT_STAT, "Bearer ours,piped,secret")


async def test_a_report_under_a_lease_that_is_over_is_refused_and_a_question_is_not(
    admission: Admission,
) -> None:
    token = "PIPED-TOKEN ours,piped,secret"  # noqa: S105 - of the test
    agent = Agent(project_id="ours", piped_id="piped")
    for name in ("first", "second"):
        instance = Instance(agent=agent, instance_id=name, data_folder_id="one folder")
        await admission.leases.acquire(instance)

    current = {"authorization": token, LEASE_EPOCH_HEADER: "2"}
    caller = await admission.authenticator.admit(REPORT_STAT, current)
    assert isinstance(caller, Agent)
    assert caller.lease_epoch == 2
    over = {"authorization": token, LEASE_EPOCH_HEADER: "1"}
    with pytest.raises(StateError, match="has gone to another instance"):
        await admission.authenticator.admit(REPORT_STAT, over)
    asking = await admission.authenticator.admit(LIST_OF_PIPED, over)
    assert isinstance(asking, Agent)


@pytest.mark.parametrize("epoch", ["", "two", "-1", "+1", "1.0", "\u0661", "1" * 20, "9" * 400])
async def test_an_epoch_that_is_no_number_of_ours_is_refused(
    admission: Admission, epoch: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await admission.authenticator.admit(
            REPORT_STAT,
            {"authorization": "PIPED-TOKEN ours,piped,secret", LEASE_EPOCH_HEADER: epoch},
        )

    expected = f"invalid metadata: {LEASE_EPOCH_HEADER}: {epoch[:40]!r} is not a number"
    assert str(caught.value) == expected


async def test_the_longest_epoch_is_one_of_nineteen_digits(admission: Admission) -> None:
    caller = await admission.authenticator.admit(
        REPORT_STAT,
        {"authorization": "PIPED-TOKEN ours,piped,secret", LEASE_EPOCH_HEADER: "9" * 19},
    )

    assert isinstance(caller, Agent)
    assert caller.lease_epoch == 10**19 - 1


async def test_a_disabled_piped_is_told_so(admission: Admission) -> None:
    def disable(piped: piped_pb2.Piped) -> None:
        piped.disabled = True

    await admission.kept.pipeds.update("ours", "piped", disable)

    with pytest.raises(UnauthenticatedError, match=r"^the piped 'agent' is disabled"):
        await admission.admit(LIST_OF_PIPED, "PIPED-TOKEN ours,piped,secret")


async def test_a_key_is_a_caller_with_its_name_role_and_end(admission: Admission) -> None:
    await admission.add_key("writer.s", expires_at=NOW + 1)
    await admission.add_key("reader.s", role=apikey_pb2.APIKey.READ_ONLY)

    writer = await admission.authenticator.admit(
        REGISTER, {"authorization": "API-KEY writer.s", IDEMPOTENCY_KEY_HEADER: "once" * 100}
    )
    reader = await admission.admit(LIST, "API-KEY reader.s")

    assert writer == ApiKeyCaller(
        project_id="ours",
        key_id="writer",
        name="key writer",
        may_write=True,
        expires_at=NOW + 1,
        idempotency_key="once" * 50,
    )
    assert isinstance(reader, ApiKeyCaller)
    assert (reader.name, reader.may_write, reader.expires_at) == ("key reader", False, 0)


async def test_a_key_that_may_only_read_only_reads(admission: Admission) -> None:
    await admission.add_key("reader.s", role=apikey_pb2.APIKey.READ_ONLY)
    await admission.add_key("writer.s")

    with pytest.raises(DeniedError, match=r"^the API key 'key reader' may only read"):
        await admission.admit(REGISTER, "API-KEY reader.s")

    for listing in (LIST, LIST_PIPEDS):
        for key in ("reader", "writer"):
            caller = await admission.admit(listing, f"API-KEY {key}.s")
            assert isinstance(caller, ApiKeyCaller)
            assert caller.key_id == key
    assert admission.refused == [("RegisterPiped", "api-key:reader")]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("key.wrong", "unknown or wrong API key"),
        ("other.s", "unknown or wrong API key"),
        ("off.s", "the API key 'key off' is disabled"),
        ("over.s", "the API key 'key over' has expired"),
        ("key", "the credential is malformed"),
        ("key.s.more", "the credential is malformed"),
        ("key.", "the credential is malformed"),
        (" key.s", "the credential is malformed"),
    ],
)
async def test_a_key_that_counts_no_more_is_refused(
    admission: Admission, key: str, says: str
) -> None:
    """With the time that it ends at, a key has ended."""
    await admission.add_key("key.s")
    await admission.add_key("off.s", disabled=True)
    await admission.add_key("over.s", expires_at=NOW)

    with pytest.raises(UnauthenticatedError, match=f"^{says}"):
        await admission.admit(LIST, f"API-KEY {key}")


async def test_a_call_notes_the_use_of_its_key_and_a_look_at_a_running_call_does_not(
    admission: Admission,
) -> None:
    await admission.add_key("key.s")
    shown = {"authorization": "API-KEY key.s"}
    uses = admission.shared.key_uses

    again = await admission.authenticator.admit_again(LIST, shown)
    assert isinstance(again, ApiKeyCaller)
    assert await uses.find_last("ours", "key") == 0

    await admission.authenticator.admit(LIST, shown)
    assert await uses.find_last("ours", "key") == NOW


async def test_a_session_is_a_person_with_their_rights(admission: Admission) -> None:
    cookie = await admission.sign_in()

    for called in (GET_ME, LIST_PIPEDS):
        caller = await admission.authenticator.admit(
            called, {"cookie": cookie, IDEMPOTENCY_KEY_HEADER: "k"}
        )
        assert isinstance(caller, Person)
        assert (caller.project_id, caller.name, caller.idempotency_key) == ("ours", "ada", "k")


@pytest.mark.parametrize(
    ("called", "authorization", "says"),
    [
        (GET_ME, "PIPED-TOKEN ours,piped,secret", "GetMe needs a session"),
        (GET_ME, "API-KEY key.s", "GetMe needs a session"),
        (
            LIST,
            "PIPED-TOKEN ours,piped,secret",
            "ListApplications needs an API key or a session",
        ),
        (REPORT_STAT, "", "ReportStat needs a piped token"),
        (REPORT_STAT, "API-KEY key.s", "ReportStat needs a piped token"),
        (
            LIST_PIPEDS,
            "PIPED-TOKEN ours,piped,secret",
            "ListPipeds needs an API key or a session",
        ),
    ],
)
async def test_a_caller_of_another_kind_is_told_what_is_needed(
    admission: Admission, called: Method, authorization: str, says: str
) -> None:
    """Also one whose browser sends the cookie of a session: what it shows is what counts."""
    await admission.add_key("key.s")
    cookie = await admission.sign_in()

    with pytest.raises(UnauthenticatedError, match=f"^{says}$"):
        await admission.admit(called, authorization, cookie=cookie)


@pytest.mark.parametrize("scheme", ["API-KEY", "Bearer"])
async def test_the_project_of_a_key_is_told_outside_of_an_rpc(
    admission: Admission, scheme: str
) -> None:
    await admission.add_key("key.s", slow=True)

    project_id = await admission.authenticator.project_of_key(f"{scheme} key.s", "10.0.0.1")

    assert project_id == "ours"
    assert await admission.shared.key_uses.find_last("ours", "key") == NOW


async def test_no_other_credential_has_a_project_outside_of_an_rpc(admission: Admission) -> None:
    await admission.add_key("key.s")

    for authorization in ("", "key.s", "PIPED-TOKEN key.s", "Basic key.s"):
        with pytest.raises(UnauthenticatedError, match="an API key is needed"):
            await admission.authenticator.project_of_key(authorization, "10.0.0.1")


SLOW = [
    (LIST, "API-KEY slow.{}", "unknown or wrong API key"),
    (LIST_OF_PIPED, "PIPED-TOKEN ours,slow,{}", "unknown piped or wrong piped key"),
]


@pytest.mark.parametrize(("called", "shown", "refusal"), SLOW)
async def test_fifty_keys_are_compared_at_once_and_one_more_each_two_seconds(
    admission: Admission, called: Method, shown: str, refusal: str
) -> None:
    """For each id and each network: comparing costs us time, and theirs is not our users'."""
    await admission.add_key("slow.right", slow=True)
    await admission.add_piped("slow", "right", slow=True)

    async def show(secret: str, peer: str = "10.0.0.1") -> object:
        metadata = {"authorization": shown.format(secret), PEER: peer}
        return await admission.authenticator.admit(called, metadata)

    for number in range(50):
        with pytest.raises(UnauthenticatedError, match=refusal):
            await show(f"wrong{number}")
    with pytest.raises(TooManyAttemptsError, match="too many different keys"):
        await show("wrong50")
    with pytest.raises(TooManyAttemptsError):
        await show("right")

    assert await show("right", "10.0.0.2")
    assert await show("right")  # known to be right by now, so it costs nothing
    with pytest.raises(UnauthenticatedError):
        await show("wrong0")
    admission.clock.now = 2
    with pytest.raises(UnauthenticatedError):
        await show("wrong51")
    with pytest.raises(TooManyAttemptsError):
        await show("wrong52")


@pytest.mark.parametrize(("called", "shown", "refusal"), SLOW)
async def test_a_running_call_that_is_looked_at_again_uses_up_no_attempt(
    admission: Admission, called: Method, shown: str, refusal: str
) -> None:
    """Its key was accepted before, maybe by a process that is gone by now."""
    await admission.add_key("slow.right", slow=True)
    await admission.add_piped("slow", "right", slow=True)
    for number in range(60):
        metadata = {"authorization": shown.format(f"wrong{number}"), PEER: "10.0.0.1"}
        with pytest.raises(UnauthenticatedError, match=refusal):
            await admission.authenticator.admit_again(called, metadata)

    metadata = {"authorization": shown.format("right"), PEER: "10.0.0.1"}
    caller = await admission.authenticator.admit(called, metadata)
    assert caller.project_id == "ours"
