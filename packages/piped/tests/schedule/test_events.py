# SPDX-License-Identifier: Apache-2.0
"""The events of a successful deployment."""

from typing import Any

from pipecd_model.config import load_application
from pipecd_piped.schedule.events import build_events
from pipecd_wire.model import common_pb2
from pipecd_wire.model import deployment_pb2 as pb

DEPLOYMENT = pb.Deployment(
    id="d1",
    application_name="web",
    trigger=pb.DeploymentTrigger(commit=pb.Commit(hash="feed")),
    versions=[common_pb2.ArtifactVersion(version="v1.2"), common_pb2.ArtifactVersion(version="v9")],
)


def events_of(
    post_sync: str, deployment: pb.Deployment = DEPLOYMENT
) -> tuple[list[Any], list[str]]:
    file = "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n  name: web\n"
    text = f"{file}  postSync: {post_sync}\n"
    config = load_application(text, file="app.pipecd.yaml").config
    return build_events(config, deployment)


def test_an_event_says_the_commit_unless_its_author_wants_more() -> None:
    events, faults = events_of(
        "{events: [{name: one}, {name: two, labels: {env: dev},"
        " data: '{{.application}}/{{ .version }}@{{ .commit }} by {{ .deployment }}'}]}"
    )

    assert not faults
    assert [(each.number, each.name, each.data, dict(each.labels)) for each in events] == [
        (0, "one", "feed", {}),
        (1, "two", "web/v1.2@feed by d1", {"env": "dev"}),
    ]
    assert {each.deployment_id for each in events} == {"d1"}


def test_an_event_without_data_is_not_registered_and_says_so() -> None:
    without = pb.Deployment(id="d1")

    events, faults = events_of("{events: [{name: one, data: '{{ .version }}'}]}", without)

    assert events == []
    assert faults == ["the event 'one' was not registered: its data is empty"]


def test_an_event_that_is_too_long_is_not_registered_and_says_so() -> None:
    """How long the values are is known only now: lint sees the rest."""
    long = pb.Deployment(id="d1", versions=[common_pb2.ArtifactVersion(version="v" * 70_000)])

    events, faults = events_of(
        "{events: [{name: one, data: '{{ .version }}'}, {name: two, data: '{{ .deployment }}'}]}",
        long,
    )

    assert [each.name for each in events] == ["two"]
    assert faults == [
        "the event 'one' was not registered: its data has 70000 characters, at most 65536"
    ]


def test_nothing_is_registered_where_nothing_is_asked_for() -> None:
    assert events_of("{}") == ([], [])
