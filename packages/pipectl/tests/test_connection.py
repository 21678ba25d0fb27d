# SPDX-License-Identifier: Apache-2.0
"""Which control plane, and as whom: what is said wins over what is kept."""

from pathlib import Path

import click
import pytest

from pipecd_model.errors import DeniedError, PipecdError, UnauthenticatedError, UnavailableError
from pipecd_pipectl.connection import (
    ConnectionFlags,
    ControlPlaneConnection,
    choose_connection,
)
from pipecd_pipectl.contexts import Context, ContextStore
from pipecd_wire.headers import ANSWER_TRAILER
from pipecd_wire.rpc import CallError
from pipecd_wire.rpc.status import Trailers

SHOP = Context(
    address="shop.example.com:443", project="shop", subject="ada", session="s1.a", expires_at=9
)
ANSWERED = ((ANSWER_TRAILER, b"1"),)
PLAIN = Context(address="127.0.0.1:8080", insecure=True, session="s2.b")


@pytest.fixture
def store(tmp_path: Path) -> ContextStore:
    made = ContextStore(tmp_path / "pipectl")
    made.save("shop", SHOP)
    made.save("plain", PLAIN)
    made.use("shop")
    return made


def choose(store: ContextStore, **flags: object) -> ControlPlaneConnection:
    return choose_connection(ConnectionFlags(**flags), store)  # type: ignore[arg-type]


def test_without_flags_it_is_the_session_of_the_current_context(store: ContextStore) -> None:
    chosen = choose(store)

    assert (chosen.address, chosen.insecure) == ("shop.example.com:443", False)
    assert chosen.credentials == [("cookie", "token=s1.a")]


def test_a_named_context_counts_rather_than_the_current_one(store: ContextStore) -> None:
    chosen = choose(store, context="plain")

    assert (chosen.address, chosen.insecure, chosen.session) == ("127.0.0.1:8080", True, "s2.b")


def test_an_address_and_a_key_need_no_context(tmp_path: Path) -> None:
    none = ContextStore(tmp_path / "nothing")

    chosen = choose(none, address="http://host:1", api_key=" k.s \n")

    assert (chosen.address, chosen.insecure) == ("host:1", True)
    assert chosen.credentials == [("authorization", "API-KEY k.s")]


def test_a_key_wins_over_the_session_of_the_context(store: ContextStore) -> None:
    chosen = choose(store, api_key="k.s")

    assert (chosen.address, chosen.session) == ("shop.example.com:443", "")
    assert chosen.credentials == [("authorization", "API-KEY k.s")]


def test_an_address_finds_the_session_that_was_made_there_and_no_other(
    store: ContextStore,
) -> None:
    assert choose(store, address="http://127.0.0.1:8080").session == "s2.b"
    assert choose(store, address="127.0.0.1:8080", insecure=True).session == "s2.b"
    assert choose(store, address="https://shop.example.com").session == "s1.a"
    for address in ("other.example.com", "shop.example.com:444", "127.0.0.1:8080"):
        with pytest.raises(click.UsageError, match=f"pipectl login {address}"):
            choose(store, address=address)
    with pytest.raises(click.UsageError, match=r"the context .shop. is of shop\.example\.com:443"):
        choose(store, context="shop", address="other.example.com")


def test_nothing_at_all_says_how_to_begin(tmp_path: Path) -> None:
    none = ContextStore(tmp_path / "nothing")

    with pytest.raises(click.UsageError, match="pipectl login ADDRESS"):
        choose(none)
    with pytest.raises(click.UsageError, match="pipectl login ADDRESS"):
        choose(none, api_key="k.s")
    with pytest.raises(click.UsageError, match="exclude each other"):
        choose(none, api_key="k.s", api_key_file=tmp_path / "key")


def test_a_context_without_a_session_says_how_to_sign_in(store: ContextStore) -> None:
    store.save("out", Context(address="host:443"))

    with pytest.raises(UnauthenticatedError) as refused:
        choose(store, context="out")

    assert "pipectl login --context out" in refused.value.hint


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"\n", "it is empty"),
        (b"\xff\xfe\x00", "it is no text"),
        (b"\x7fELF\x02\x01\x01", "it has characters that no key has"),
        (b"-----BEGIN KEY-----\nabc\n", "it has more than one line"),
        (b"two words", "it has characters that no key has"),
        (b"k.s\x1b[2J", "it has characters that no key has"),
        ("schlüssel.x".encode(), "it has characters that no key has"),
        (b"x" * 5000, "it is too long"),
    ],
)
def test_a_key_file_with_other_content_is_a_sentence(
    tmp_path: Path, content: bytes, why: str
) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)

    with pytest.raises(click.UsageError) as wrong:
        choose(ContextStore(tmp_path), address="host", api_key_file=file)

    assert wrong.value.message.startswith(f"the file {str(file)!r} holds no API key: {why}")


def test_a_certificate_file_without_certificates_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nothing")

    with pytest.raises(click.UsageError, match="holds no certificate"):
        choose(ContextStore(tmp_path), address="host", api_key="k.s", cert_file=file)
    with pytest.raises(PipecdError, match="cannot read"):
        choose(ContextStore(tmp_path), address="host", api_key="k.s", cert_file=tmp_path / "no")


def test_a_failed_call_is_explained_by_what_the_caller_has(store: ContextStore) -> None:
    session, key = choose(store), choose(store, api_key="k.s")
    ended = CallError("UNAUTHENTICATED", "Unauthenticated (sign in again)")
    denied = CallError("PERMISSION_DENIED", "Permission Denied")
    refused = CallError("PERMISSION_DENIED", "the stage has other approvers")
    away = CallError("UNAVAILABLE", "connect: Connection refused (111)")

    told = session.explain(ended)
    assert isinstance(told, UnauthenticatedError)
    assert told.hint == "sign in again: pipectl login"
    assert isinstance(session.explain(denied), DeniedError)
    assert session.explain(refused) is refused
    assert key.explain(ended) is ended
    assert key.explain(denied) is denied
    assert isinstance(key.explain(away), UnavailableError)
    assert "shop.example.com:443" in str(session.explain(away))


@pytest.mark.parametrize(
    ("message", "trailers", "has_reached"),
    [
        ("the bucket 'logs' does not answer: Connection refused", ANSWERED, True),
        ("the bucket 'logs' does not answer: Connection refused", (), False),
        ("an older server has no such trailer", (), True),
        ("failed to connect to all addresses; last error: something new", (), False),
        ("", (), False),
    ],
)
def test_a_control_plane_that_answers_was_reached(
    store: ContextStore, message: str, trailers: Trailers, has_reached: bool
) -> None:
    told = choose(store).explain(CallError("UNAVAILABLE", message, trailers=trailers))

    assert isinstance(told, UnavailableError)
    if has_reached:
        assert (
            str(told) == f"the control plane at shop.example.com:443 cannot do that now: {message}"
        )
    else:
        assert str(told).startswith("cannot reach the control plane at shop.example.com:443: ")
