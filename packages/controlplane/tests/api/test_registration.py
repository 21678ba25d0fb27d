# SPDX-License-Identifier: Apache-2.0
"""An agent registers what it found: for itself, once, and never against a person's decision."""

from typing import Any

import pytest

from pipecd_controlplane.usecases import registration
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model.registration import get_place, make_registered_id
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import application_pb2, deployment_pb2
from pipecd_wire.pipecd.push import push_pb2 as pb
from pipecd_wire.rpc import CallError, call

Kind = pb.RegistrationOutcome


def found(name: str = "web", **fields: Any) -> pb.FoundApplication:
    given = {
        "repository_id": "repo",
        "path": f"apps/{name}",
        "config_filename": "app.pipecd.yaml",
        **fields,
    }
    return pb.FoundApplication(name=name, **given)


async def register(agent: AgentClient, *applications: pb.FoundApplication) -> list[Kind]:
    request = pb.RegisterApplicationsRequest(applications=applications)
    return list((await call(agent.push.RegisterApplications, request)).outcomes)


async def list_all(plane: ServedControlPlane) -> list[application_pb2.Application]:
    answer = await call(plane.admin.api.ListApplications, api.ListApplicationsRequest())
    return list(answer.applications)


async def test_what_an_agent_found_becomes_an_application_of_its_own(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    targets = {"kubernetes": deployment_pb2.DeployTargets(deploy_targets=["prod"])}

    (outcome,) = await register(
        agent,
        found(labels={"team": "a"}, description="words", deploy_targets_by_plugin=targets),
    )

    assert outcome.kind == Kind.REGISTERED
    (application,) = await list_all(plane)
    assert application.id == outcome.application_id
    assert application.piped_id == agent.id
    assert (application.name, application.description) == ("web", "words")
    assert dict(application.labels) == {"team": "a"}
    assert application.git_path.repo.remote == "git@github.com:org/name.git"
    assert application.git_path.url == "https://github.com/org/name/tree/main/apps/web"
    assert list(application.deploy_targets_by_plugin["kubernetes"].deploy_targets) == ["prod"]
    place = get_place(application.git_path)
    assert application.id == make_registered_id("default", place)


async def test_asking_again_changes_nothing(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    first = await register(agent, found("a"), found("b"))

    again = await register(agent, found("b"), found("a", path="./apps/a/"), found("a"))

    assert [each.kind for each in again] == [Kind.REGISTERED] * 3
    assert [each.application_id for each in again[:2]] == [
        each.application_id for each in reversed(first)
    ]
    assert len(await list_all(plane)) == 2


async def test_what_a_person_has_registered_stays_as_it_is(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent, name="by hand")
    git_path = build.git_path()

    (outcome,) = await register(
        agent,
        found("other", path=git_path.path, config_filename=git_path.config_filename),
    )

    assert (outcome.kind, outcome.application_id) == (Kind.REGISTERED_BEFORE, application_id)
    assert [each.name for each in await list_all(plane)] == ["by hand"]


async def test_what_a_person_has_deleted_is_not_registered_again(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    (made,) = await register(agent, found())
    await call(
        plane.admin.api.DeleteApplication,
        api.DeleteApplicationRequest(application_id=made.application_id),
    )

    (outcome,) = await register(agent, found())

    assert outcome.kind == Kind.DELETED
    assert "pipectl application add" in outcome.sentence
    assert not await list_all(plane)
    other = await plane.agent(name="other")
    (elsewhere,) = await register(other, found())
    assert elsewhere.kind == Kind.DELETED


async def test_a_person_can_bring_back_what_was_deleted(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    git_path = build.git_path()
    same = found("hello", path=git_path.path, config_filename=git_path.config_filename)
    (made,) = await register(agent, same)
    await call(
        plane.admin.api.DeleteApplication,
        api.DeleteApplicationRequest(application_id=made.application_id),
    )
    application_id = await plane.application(agent)

    (outcome,) = await register(agent, same)

    assert (outcome.kind, outcome.application_id) == (Kind.REGISTERED_BEFORE, application_id)


async def test_no_agent_takes_what_another_has(plane: ServedControlPlane) -> None:
    """They watch the same repository: one commit must not be deployed by both."""
    one, other = await plane.agent(name="one"), await plane.agent(name="other")
    await register(one, found())

    (outcome,) = await register(other, found())

    assert outcome.kind == Kind.OF_ANOTHER_AGENT
    assert one.id in outcome.sentence
    assert [each.piped_id for each in await list_all(plane)] == [one.id]


async def test_a_name_that_another_application_has_is_refused(plane: ServedControlPlane) -> None:
    agent = await plane.agent()

    first, second = await register(agent, found(), found(path="elsewhere"))

    assert first.kind == Kind.REGISTERED
    assert second.kind == Kind.NAME_TAKEN
    assert "'web'" in second.sentence
    theirs = await plane.other_project()
    (own,) = await register(await plane.agent(theirs), found())
    assert own.kind == Kind.REGISTERED


@pytest.mark.parametrize(
    "fields",
    [
        {"repository_id": "of another agent"},
        {"path": "../outside"},
        {"path": "/etc"},
        {"config_filename": "../../../x"},
        {"description": "x" * 100_000},
        {"labels": {str(number): "x" for number in range(1000)}},
    ],
)
async def test_what_cannot_be_registered_is_told_and_keeps_no_other_from_it(
    plane: ServedControlPlane, fields: dict[str, Any]
) -> None:
    agent = await plane.agent()

    bad, good = await register(agent, found("bad", **fields), found("good"))

    assert bad.kind == Kind.INVALID
    assert bad.sentence
    assert good.kind == Kind.REGISTERED


async def test_there_are_so_many_and_no_more(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    caller = Agent(project_id="default", piped_id=agent.id)

    outcomes = await registration.register(
        plane.stores, caller, [found(f"a{number}") for number in range(5)], lambda: 1, most=3
    )

    assert [each.kind for each in outcomes] == [Kind.REGISTERED] * 3 + [Kind.TOO_MANY] * 2
    many = [found(f"b{number}") for number in range(registration.MOST_AT_ONCE + 1)]
    with pytest.raises(CallError, match="at most 100"):
        await register(agent, *many)
