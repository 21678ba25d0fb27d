# SPDX-License-Identifier: Apache-2.0
"""Whatever a server says becomes one safe sentence of bounded length."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipecd_plugin_kubernetes.client import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    FieldConflict,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
)
from pipecd_plugin_kubernetes.client.refusals import (
    clean_message,
    describe_conflicts,
    read_refusal,
    read_status,
)
from pipecd_plugin_kubernetes.client.requests import Request

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "message": ANYTHING,
        "reason": ANYTHING | st.sampled_from(["Conflict", "Invalid", "Expired"]),
        "code": ANYTHING | st.integers(min_value=100, max_value=599),
        "details": ANYTHING
        | st.fixed_dictionaries(
            {
                "causes": ANYTHING
                | st.lists(
                    st.fixed_dictionaries(
                        {"reason": ANYTHING, "field": ANYTHING, "message": ANYTHING}
                    )
                ),
                "retryAfterSeconds": ANYTHING,
            }
        ),
    },
)


@given(status=st.integers(min_value=300, max_value=599), body=STATUS | ANYTHING, after=st.text())
def test_every_answer_is_a_sentence(status: int, body: Any, after: str) -> None:
    sent = json.dumps(body).encode()
    error = read_refusal("apply Pod 'x'", status, sent, retry_after=after, source="here")
    assert str(error).startswith("cannot apply Pod 'x': ")
    assert not any(ord(sign) < 32 for sign in str(error))
    assert len(str(error)) < 12_000
    assert error.http_status == status
    assert error.retry_after_seconds is None or 0 < error.retry_after_seconds <= 3600


@given(body=STATUS)
def test_every_error_of_a_watch_is_a_sentence(body: dict[str, Any]) -> None:
    assert str(read_status("watch pods", body)).startswith("cannot watch pods: ")


@given(text=st.text(), longest=st.integers(min_value=1, max_value=50))
def test_messages_are_bounded(text: str, longest: int) -> None:
    cleaned = clean_message(text, longest)
    assert len(cleaned) <= longest
    assert not any(ord(sign) < 32 for sign in cleaned)


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (400, "BadRequest", InvalidError),
        (401, "Unauthorized", UnauthorizedError),
        (403, "Forbidden", ForbiddenError),
        (404, "NotFound", NotFoundError),
        (405, "MethodNotAllowed", ApiError),
        (409, "AlreadyExists", AlreadyExistsError),
        (409, "Conflict", ConflictError),
        (410, "Expired", GoneError),
        (413, "RequestEntityTooLarge", InvalidError),
        (422, "Invalid", InvalidError),
        (429, "TooManyRequests", UnavailableError),
        (500, "InternalError", UnavailableError),
        (503, "ServiceUnavailable", UnavailableError),
        (504, "Timeout", UnavailableError),
    ],
)
def test_a_status_has_its_class(status: int, reason: str, expected: type[ApiError]) -> None:
    body = json.dumps({"reason": reason, "message": "why"}).encode()
    error = read_refusal("do it", status, body)
    assert type(error) is expected
    assert (error.status_reason, error.message) == (reason, "why")
    watched = read_status("do it", {"reason": reason, "message": "why", "code": status})
    assert type(watched) is expected


def test_many_causes_are_counted() -> None:
    causes = [{"field": f"spec.f{number}", "message": "bad"} for number in range(25)]
    body = json.dumps({"reason": "Invalid", "details": {"causes": causes}}).encode()
    assert str(read_refusal("do it", 422, body)).endswith("spec.f9: bad and 15 more")


def test_conflicts_are_grouped_by_manager() -> None:
    conflicts = [
        FieldConflict(manager="a", field=".spec.x"),
        FieldConflict(manager="b", field=".spec.y"),
        FieldConflict(manager="a", field=".spec.z"),
    ]
    assert describe_conflicts(conflicts) == "'a' owns .spec.x, .spec.z; 'b' owns .spec.y"


RIGHTS = (
    'secrets "login" is forbidden: User "system:serviceaccount:pipecd:piped" cannot patch resource'
    ' "secrets" in API group "" in the namespace "shop"'
)
CHANGED = (
    'Operation cannot be fulfilled on secrets "login": the object has been modified; please apply'
    " your changes to the latest version and try again"
)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ('namespaces "shop" not found', 'namespaces "shop" not found'),
        (RIGHTS, RIGHTS),
        (CHANGED, CHANGED),
        ('admission webhook "w.example.com" denied the request: hunter2', "denied the request"),
        (
            'Internal error occurred: failed calling webhook "w": Post "https://u:hunter2@w"',
            'failed calling webhook "w"',
        ),
        ('error found in #10 byte of ...|password":"hunter2"|...', "is not shown"),
        (RIGHTS + " hunter2", "is not shown"),
    ],
)
def test_what_a_server_says_of_a_secret_has_no_values(message: str, shown: str) -> None:
    """Decoders and webhooks quote what they do not like."""
    status = {"message": message, "code": 400, "reason": "BadRequest"}
    error = read_status("apply Secret 'login'", status, is_secret=True)
    assert shown in str(error)
    assert "hunter2" not in error.reason() + error.message
    assert "hunter2" in read_status("apply x", {"message": "hunter2"}).reason()


def test_fields_of_a_secret_are_named_without_their_values() -> None:
    causes = [
        {
            "field": "data[a b]",
            "reason": "FieldValueInvalid",
            "message": 'Invalid value: "hunter2"',
        },
        {"field": "data", "reason": "FieldValueForbidden", "message": "field is immutable when"},
    ]
    status = {"message": "hunter2", "code": 422, "details": {"causes": causes}}
    error = read_status("apply Secret 'login'", status, is_secret=True)
    assert "data[a b]: FieldValueInvalid; data: field is immutable" in str(error)
    assert "hunter2" not in f"{error.reason()}{error.message}{error.causes}"


@given(st.text(), STATUS)
def test_nothing_that_is_not_known_is_said_of_a_secret(text: str, given: dict[str, Any]) -> None:
    status = {**given, "message": f"{text}hunter2", "reason": "", "details": {}}
    assert "hunter2" not in read_status("apply Secret 'login'", status, is_secret=True).reason()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/namespaces/shop/secrets/login", True),
        ("/api/v1/namespaces/shop/secrets", True),
        ("/api/v1/namespaces/secrets/configmaps/secrets", False),
        ("/apis/example.com/v1/namespaces/shop/secrets/login", False),
    ],
)
def test_a_request_knows_whether_it_sends_a_secret(path: str, expected: bool) -> None:
    assert Request(what="", method="PATCH", path=path, body=b"{}").sends_secret is expected
    assert not Request(what="", method="GET", path=path).sends_secret
