# SPDX-License-Identifier: Apache-2.0
"""What git hosts send is understood as they document it; what only looks like it is not."""

import json
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_controlplane.usecases.githosts.pushes import MOST_BRANCHES, PushEvent, read_push
from pipecd_controlplane.usecases.githosts.signatures import (
    MAX_AGE_SECONDS,
    SignedBody,
    find_secret,
    has_signature,
    is_stale,
    sign_generic,
)
from pipecd_model.errors import ConfigError
from pipecd_model.remotes import has_path, normalize_remote
from pipecd_test_support.git_hooks import (
    COMMIT,
    EVENTS,
    ZEROS,
    SentHook,
    describe_push,
    push_as,
    send_as,
)
from pipecd_wire.pipecd.api.repositories_pb2 import Hook

HOSTS = [number for number in Hook.Host.values() if number]
SECRET = "s3cret"  # noqa: S105 - of this test alone


def names(host: Hook.Host.ValueType) -> str:
    return Hook.Host.Name(host).lower()


def lowered(sent: SentHook) -> dict[str, str]:
    return {name.lower(): value for name, value in sent.headers.items()}


def find(sent: SentHook, host: Hook.Host.ValueType, *secrets: str) -> int:
    return find_secret(SignedBody(headers=lowered(sent), body=sent.body), host, secrets)


def read(host: Hook.Host.ValueType, body: object, **headers: str) -> PushEvent:
    sent = send_as(host, SECRET, json.dumps(body).encode())
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_push(lowered(sent) | more, sent.body, host)


@pytest.mark.parametrize("host", HOSTS, ids=names)
def test_a_signature_is_good_for_its_secret_alone(host: Hook.Host.ValueType) -> None:
    sent = push_as(host, SECRET)

    assert has_signature(lowered(sent))
    assert find(sent, host, SECRET) == 0
    assert find(sent, host, "other", SECRET) == 1
    assert find(sent, host, "other") == -1
    assert find(sent, host, "") == -1
    assert find(sent, host) == -1


@pytest.mark.parametrize("host", [host for host in HOSTS if host != Hook.GITLAB], ids=names)
def test_a_changed_body_is_not_signed(host: Hook.Host.ValueType) -> None:
    sent = push_as(host, SECRET)

    assert find(SentHook(headers=sent.headers, body=sent.body + b" "), host, SECRET) == -1


@pytest.mark.parametrize("host", HOSTS, ids=names)
def test_a_request_without_a_signature_or_with_a_hostile_one_is_not_signed(
    host: Hook.Host.ValueType,
) -> None:
    sent = push_as(host, SECRET)
    bare = {"Content-Type": "application/json", **EVENTS[host]}

    assert not has_signature({name.lower(): value for name, value in bare.items()})
    for value in ("", " ", "sha256=", "é" * 10, "x" * 100_000):
        signed = {
            name: value if name.lower().endswith(("signature", "256", "token")) else kept
            for name, kept in sent.headers.items()
        }
        assert find(SentHook(headers=signed, body=sent.body), host, SECRET) == -1


def test_the_signature_of_one_host_is_none_of_another() -> None:
    """A secret that leaked as GitLab's token must not become a signature, or the other way."""
    sent = push_as(Hook.GITLAB, SECRET)

    for host in HOSTS:
        if host != Hook.GITLAB:
            assert find(sent, host, SECRET) == -1


def test_forgejo_signs_with_a_header_of_its_own() -> None:
    sent = push_as(Hook.GITEA, SECRET)
    signature = sent.headers.pop("X-Gitea-Signature")
    renamed = SentHook(headers={**sent.headers, "X-Forgejo-Signature": signature}, body=sent.body)

    assert find(renamed, Hook.GITEA, SECRET) == 0


def test_the_generic_hook_signs_its_time_and_refuses_what_is_not_about_now() -> None:
    sent = send_as(Hook.GENERIC, SECRET, b"{}", at=1000)
    headers = lowered(sent)

    assert headers["x-pipecd-signature"] == sign_generic(SECRET, 1000, b"{}")
    assert not is_stale(headers, 1000 + MAX_AGE_SECONDS)
    assert not is_stale(headers, 1000 - MAX_AGE_SECONDS)
    assert is_stale(headers, 1001 + MAX_AGE_SECONDS)
    assert is_stale(headers, 999 - MAX_AGE_SECONDS)
    moved = SentHook(headers={**sent.headers, "X-Pipecd-Timestamp": "1001"}, body=sent.body)
    assert find(moved, Hook.GENERIC, SECRET) == -1
    timeless = {name: value for name, value in sent.headers.items() if "Timestamp" not in name}
    assert find(SentHook(headers=timeless, body=sent.body), Hook.GENERIC, SECRET) == -1
    for text in ("", "x", "-1", "1e3", "1" * 5000, "\uff11\uff10"):
        assert is_stale({"x-pipecd-timestamp": text}, 1000)


@pytest.mark.parametrize("host", HOSTS, ids=names)
def test_a_push_says_its_repository_branch_and_commit(host: Hook.Host.ValueType) -> None:
    event = read(host, describe_push(host, branch="release/1"))

    assert [(each.name, each.commit_hash) for each in event.branches] == [("release/1", COMMIT)]
    if host == Hook.BITBUCKET_SERVER:
        assert has_path("bitbucket.example.com/org/name", event.repository.path)
    else:
        assert "github.com/org/name" in {normalize_remote(url) for url in event.repository.urls}
    assert not event.note
    assert not event.is_ping


def test_bitbucket_server_that_gives_addresses_is_matched_by_them() -> None:
    body = describe_push(Hook.BITBUCKET_SERVER)
    body["repository"]["links"] = {
        "clone": [{"href": "ssh://git@bb.example.com:7999/org/name.git", "name": "ssh"}]
    }

    event = read(Hook.BITBUCKET_SERVER, body)

    assert event.repository.urls == ("ssh://git@bb.example.com:7999/org/name.git",)


def test_github_can_send_its_json_as_a_form() -> None:
    """That is the content type that its page chooses when nobody does."""
    body = urlencode({"payload": json.dumps(describe_push(Hook.GITHUB))}).encode()
    sent = send_as(Hook.GITHUB, SECRET, body)
    form = {"content-type": "application/x-www-form-urlencoded"}

    event = read_push(lowered(sent) | form, body, Hook.GITHUB)

    assert [each.name for each in event.branches] == ["main"]


def test_a_try_of_the_hook_is_recognized() -> None:
    for host, event in (
        (Hook.GITHUB, {"x_github_event": "ping"}),
        (Hook.BITBUCKET_SERVER, {"x_event_key": "diagnostics:ping"}),
    ):
        assert read(host, {"zen": "x", "test": True}, **event).is_ping


@pytest.mark.parametrize(
    ("host", "change"),
    [
        (Hook.GITHUB, {"ref": "refs/tags/v1"}),
        (Hook.GITHUB, {"deleted": True, "after": ZEROS}),
        (Hook.GITEA, {"ref": "refs/tags/v1"}),
        (Hook.GITLAB, {"object_kind": "tag_push"}),
        (Hook.GITLAB, {"after": ZEROS}),
        (Hook.BITBUCKET, {"push": {"changes": []}}),
        (Hook.BITBUCKET_SERVER, {"changes": []}),
    ],
)
def test_what_moves_no_branch_is_nothing_to_look_at(
    host: Hook.Host.ValueType, change: dict[str, object]
) -> None:
    event = read(host, describe_push(host) | change)

    assert not event.branches
    assert event.note


def test_another_event_is_nothing_to_look_at() -> None:
    event = read(Hook.GITHUB, {"action": "opened"}, x_github_event="issues")

    assert event.note == "the event 'issues' is no push"


def test_the_generic_hook_may_leave_the_branch_out() -> None:
    event = read(Hook.GENERIC, {"repository": "https://example.com/a/b"})

    assert [each.name for each in event.branches] == [""]


def test_very_many_branches_are_cut() -> None:
    body = describe_push(Hook.BITBUCKET)
    body["push"]["changes"] *= 3 * MOST_BRANCHES

    assert len(read(Hook.BITBUCKET, body).branches) == MOST_BRANCHES


@pytest.mark.parametrize("host", HOSTS, ids=names)
@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"null", b"[]", b"{}", b"[" * 100_000, b'{"repository": 1}']
)
def test_a_body_that_is_no_push_is_refused_with_a_sentence(
    host: Hook.Host.ValueType, body: bytes
) -> None:
    with pytest.raises(ConfigError, match="not the JSON of a push"):
        read_push(lowered(send_as(host, SECRET, body)), body, host)


def test_a_name_that_is_no_branch_is_refused() -> None:
    with pytest.raises(ConfigError, match="not the name of a branch"):
        read(Hook.GITHUB, describe_push(Hook.GITHUB, branch="--upload-pack=x"))


@given(st.binary(max_size=300), st.sampled_from(HOSTS))
def test_any_body_is_survived(body: bytes, host: Hook.Host.ValueType) -> None:
    try:
        read_push(lowered(send_as(host, SECRET, body)), body, host)
    except ConfigError:
        return
