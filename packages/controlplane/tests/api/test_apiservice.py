# SPDX-License-Identifier: Apache-2.0
"""What programs and Go's pipectl rely on, over the real wire."""

from typing import Any

import pytest

from pipecd_model.secrets import KeyPair, Opener
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.rpc import call_refused
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import common_pb2, piped_pb2
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import call


async def test_a_piped_is_shown_without_its_key(plane: ServedControlPlane) -> None:
    agent = await plane.agent(name="east")

    answer = await call(plane.admin.api.GetPiped, pb.GetPipedRequest(piped_id=agent.id))

    assert (answer.piped.name, answer.piped.version) == ("east", "v1.0.0")
    assert [(key.hash, key.creator) for key in answer.piped.keys] == [("redacted", "admin")]


async def test_a_piped_is_renamed(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    await call(
        plane.admin.api.UpdatePiped,
        pb.UpdatePipedRequest(piped_id=agent.id, name="west", desc="new"),
    )

    answer = await call(plane.admin.api.GetPiped, pb.GetPipedRequest(piped_id=agent.id))

    assert (answer.piped.name, answer.piped.desc) == ("west", "new")


async def test_an_application_takes_its_repository_from_the_piped(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    made = await call(
        plane.admin.api.AddApplication,
        pb.AddApplicationRequest(
            name="hello",
            piped_id=agent.id,
            git_path=build.git_path("apps/hello"),
            kind=common_pb2.ECS,
            platform_provider="prod",
            labels={"env": "dev"},
        ),
    )

    answer = await call(
        plane.admin.api.GetApplication,
        pb.GetApplicationRequest(application_id=made.application_id),
    )

    application = answer.application
    assert application.git_path.repo == common_pb2.ApplicationGitRepository(
        id="repo", remote="git@github.com:org/name.git", branch="main"
    )
    assert application.git_path.url == "https://github.com/org/name/tree/main/apps/hello"
    assert (application.kind, application.platform_provider) == (common_pb2.ECS, "prod")
    assert application.cloud_provider == "prod"
    assert dict(application.labels) == {"env": "dev"}


async def test_a_repository_that_the_piped_has_not_is_named(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    path = build.git_path()
    path.repo.id = "elsewhere"

    error = await call_refused(
        plane.admin.api.AddApplication,
        pb.AddApplicationRequest(name="hello", piped_id=agent.id, git_path=path),
    )

    assert error.status == "NOT_FOUND"
    assert error.message == ("the piped 'agent' has no repository 'elsewhere' (it has 'repo')")


async def test_a_repeated_call_with_an_idempotency_key_makes_one_thing(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    """The answer to the first attempt may have been lost."""
    agent = await plane.agent()
    careful = await plane.user(plane.admin.key, extra=[("pipecd-idempotency-key", "k1")])
    add = pb.AddApplicationRequest(name="hello", piped_id=agent.id, git_path=build.git_path())
    first = await call(careful.api.AddApplication, add)
    second = await call(careful.api.AddApplication, add)
    assert first == second

    sync = pb.SyncApplicationRequest(application_id=first.application_id)
    first_sync = await call(careful.api.SyncApplication, sync)
    await call(
        plane.admin.api.DisableApplication,
        pb.DisableApplicationRequest(application_id=first.application_id),
    )
    assert await call(careful.api.SyncApplication, sync) == first_sync
    listed = await call(
        agent.service.ListUnhandledCommands, pipedservice.ListUnhandledCommandsRequest()
    )
    assert len(listed.commands) == 1


async def test_calls_without_a_key_make_a_new_thing_each(plane: ServedControlPlane) -> None:
    agent = await plane.agent()

    assert await plane.application(agent) != await plane.application(agent)


async def test_an_application_is_switched_off_and_on(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    app = {"application_id": application_id}
    api = plane.admin.api

    await call(api.DisableApplication, pb.DisableApplicationRequest(**app))
    off = await call(api.ListApplications, pb.ListApplicationsRequest(disabled=True))
    error = await call_refused(api.SyncApplication, pb.SyncApplicationRequest(**app))
    await call(api.EnableApplication, pb.EnableApplicationRequest(**app))
    on = await call(api.ListApplications, pb.ListApplicationsRequest())

    assert [application.id for application in off.applications] == [application_id]
    assert [application.id for application in on.applications] == [application_id]
    assert (error.status, error.message) == (
        "FAILED_PRECONDITION",
        "the application 'hello' is disabled",
    )


async def test_a_deleted_application_stays_deleted(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    app = {"application_id": await plane.application(agent)}
    api = plane.admin.api

    await call(api.DeleteApplication, pb.DeleteApplicationRequest(**app))
    await call(api.DeleteApplication, pb.DeleteApplicationRequest(**app))

    error = await call_refused(api.EnableApplication, pb.EnableApplicationRequest(**app))
    assert (error.status, error.message) == (
        "INVALID_ARGUMENT",
        "the application 'hello' is deleted",
    )
    answer = await call(api.GetApplication, pb.GetApplicationRequest(**app))
    assert answer.application.deleted
    assert answer.application.deleted_at > 0


async def test_deploy_targets_are_replaced(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    app = {"application_id": await plane.application(agent)}
    for plugin in ("kubernetes", "terraform"):
        await call(
            plane.admin.api.UpdateApplicationDeployTargets,
            pb.UpdateApplicationDeployTargetsRequest(
                **app,
                deploy_targets_by_plugin={plugin: model.DeployTargets(deploy_targets=["a", "b"])},
            ),
        )

    answer = await call(plane.admin.api.GetApplication, pb.GetApplicationRequest(**app))

    targets = answer.application.deploy_targets_by_plugin
    assert list(targets) == ["terraform"]
    assert list(targets["terraform"].deploy_targets) == ["a", "b"]


async def test_an_application_moves_to_another_piped(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent, other = await plane.agent(), await plane.agent(name="other")
    application_id = await plane.application(agent)
    path = build.git_path()
    path.config_filename = "other.pipecd.yaml"

    await call(
        plane.admin.api.UpdateApplication,
        pb.UpdateApplicationRequest(
            application_id=application_id, piped_id=other.id, git_path=path
        ),
    )

    for piped, count in ((agent, 0), (other, 1)):
        listed = await call(piped.service.ListApplications, pipedservice.ListApplicationsRequest())
        assert len(listed.applications) == count
    assert listed.applications[0].git_path.config_filename == "other.pipecd.yaml"


async def test_config_files_are_renamed_together(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    ids = [await plane.application(agent, name=name) for name in ("one", "two")]
    rename = plane.admin.api.RenameApplicationConfigFile

    error = await call_refused(
        rename,
        pb.RenameApplicationConfigFileRequest(application_ids=[*ids, "gone"], new_filename="x"),
    )
    assert error.status == "NOT_FOUND"
    await call(rename, pb.RenameApplicationConfigFileRequest(application_ids=ids, new_filename="y"))

    listed = await call(plane.admin.api.ListApplications, pb.ListApplicationsRequest())
    assert {app.git_path.config_filename for app in listed.applications} == {"y"}


@pytest.mark.parametrize(
    ("path", "filename"),
    [
        ("apps/hello", "app\n.pipecd.yaml"),
        ("apps/hello", "app.pipecd.yaml\r"),
        ("apps/hello", "\0"),
        ("apps/hello", "\x1b[2Japp.pipecd.yaml"),
        ("apps/hello", "../../../etc/passwd"),
        ("apps/hello", "/etc/passwd"),
        ("apps/hello", "x" * 5000),
        ("apps\nhello", "app.pipecd.yaml"),
        ("../hello", "app.pipecd.yaml"),
        ("a/../../b", "app.pipecd.yaml"),
        ("/etc", "passwd"),
        ("x/" * 3000, "app.pipecd.yaml"),
    ],
)
async def test_a_path_that_no_piped_could_look_for_is_refused(
    plane: ServedControlPlane, path: str, filename: str
) -> None:
    agent = await plane.agent()
    known = await plane.application(agent)
    git_path = plane.build.git_path(path)
    git_path.config_filename = filename

    refused = [
        await call_refused(
            plane.admin.api.AddApplication,
            pb.AddApplicationRequest(name="odd", piped_id=agent.id, git_path=git_path),
        )
    ]
    if path == "apps/hello":
        refused += [
            await call_refused(
                plane.admin.api.UpdateApplication,
                pb.UpdateApplicationRequest(
                    application_id=known, piped_id=agent.id, git_path=git_path
                ),
            ),
            await call_refused(
                plane.admin.api.RenameApplicationConfigFile,
                pb.RenameApplicationConfigFileRequest(
                    application_ids=[known], new_filename=filename
                ),
            ),
        ]

    assert {error.status for error in refused} == {"INVALID_ARGUMENT"}
    assert all("path" in error.message and len(error.message) < 500 for error in refused)


async def test_applications_are_listed_in_pages(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    for number in range(5):
        await plane.application(agent, name=f"app{number}", labels={"even": str(number % 2 == 0)})

    names, cursor, sizes = [], "", []
    while True:
        answer = await call(
            plane.admin.api.ListApplications, pb.ListApplicationsRequest(limit=2, cursor=cursor)
        )
        names += [application.name for application in answer.applications]
        sizes.append(len(answer.applications))
        cursor = answer.cursor
        if not cursor:
            break
    even = await call(
        plane.admin.api.ListApplications, pb.ListApplicationsRequest(labels={"even": "True"})
    )

    assert sorted(names) == [f"app{number}" for number in range(5)]
    assert sizes == [2, 2, 1]
    assert len(even.applications) == 3


async def test_a_kind_that_is_none_is_refused(plane: ServedControlPlane) -> None:
    error = await call_refused(
        plane.admin.api.ListApplications, pb.ListApplicationsRequest(kind="MAINFRAME")
    )

    assert error.status == "INVALID_ARGUMENT"
    assert "there is no kind 'MAINFRAME'" in error.message


async def test_deployments_are_listed_by_status_and_application(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    one = await plane.application(agent, name="one")
    two = await plane.application(agent, name="two")
    await plane.deployment(agent, one, "pending")
    await plane.deployment(agent, one, "running", build.stage("s1"))
    await plane.deployment(agent, two, "other", build.stage("s1"), application_name="two")

    async def ids(**wanted: Any) -> list[str]:
        answer = await call(plane.admin.api.ListDeployments, pb.ListDeploymentsRequest(**wanted))
        return sorted(deployment.id for deployment in answer.deployments)

    assert await ids() == ["other", "pending", "running"]
    assert await ids(statuses=["DEPLOYMENT_RUNNING"]) == ["other", "running"]
    assert await ids(statuses=["PENDING", "RUNNING"], application_ids=[one]) == [
        "pending",
        "running",
    ]
    assert await ids(statuses=["RUNNING", "RUNNING"]) == ["other", "running"]
    assert await ids(statuses=["RUNNING"] * 30, application_ids=[one] * 30) == ["running"]
    assert await ids(application_name="two") == ["other"]
    assert await ids(limit=1) == ["running"]


@pytest.mark.parametrize("status", ["", "FINISHED"])
async def test_a_status_that_is_none_is_refused(plane: ServedControlPlane, status: str) -> None:
    """Upstream's server dies of a blank one."""
    error = await call_refused(
        plane.admin.api.ListDeployments, pb.ListDeploymentsRequest(statuses=[status])
    )

    assert error.status == "INVALID_ARGUMENT"
    assert f"there is no status {status!r}" in error.message


async def test_too_many_values_of_a_filter_are_refused(plane: ServedControlPlane) -> None:
    error = await call_refused(
        plane.admin.api.ListDeployments,
        pb.ListDeploymentsRequest(application_ids=[str(number) for number in range(21)]),
    )

    assert error.status == "INVALID_ARGUMENT"


async def test_the_logs_of_all_stages_come_together(
    plane: ServedControlPlane, build: MessageBuilder
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await plane.deployment(
        agent,
        application_id,
        "d1",
        build.stage("s1"),
        build.stage("s2"),
        build.stage("old", name="ROLLBACK"),
    )
    await call(
        agent.service.ReportStageLogsFromLastCheckpoint,
        pipedservice.ReportStageLogsFromLastCheckpointRequest(
            deployment_id="d1", stage_id="s1", blocks=build.blocks(1, 2), completed=True
        ),
    )

    answer = await call(plane.admin.api.ListStageLogs, pb.ListStageLogsRequest(deployment_id="d1"))

    assert sorted(answer.stage_logs) == ["s1", "s2"]
    assert [block.log for block in answer.stage_logs["s1"].blocks] == ["line 1", "line 2"]
    assert answer.stage_logs["s1"].completed
    assert not answer.stage_logs["s2"].completed


async def test_a_secret_is_closed_with_the_pipeds_own_key(plane: ServedControlPlane) -> None:
    pair = KeyPair.new(bits=2048)
    agent = await plane.agent()
    await call(
        agent.service.ReportPipedMeta,
        pipedservice.ReportPipedMetaRequest(
            version="v1.0.0",
            secret_encryption=piped_pb2.Piped.SecretEncryption(
                type="KEY_PAIR", public_key=pair.public.decode()
            ),
        ),
    )

    answer = await call(
        plane.admin.api.Encrypt, pb.EncryptRequest(piped_id=agent.id, plaintext="hush")
    )

    assert Opener(pair.private).open(answer.ciphertext) == "hush"


async def test_a_piped_without_a_key_cannot_close_secrets(plane: ServedControlPlane) -> None:
    agent = await plane.agent()

    refused = await call_refused(
        plane.admin.api.Encrypt, pb.EncryptRequest(piped_id=agent.id, plaintext="hush")
    )

    assert refused.status == "FAILED_PRECONDITION"


@pytest.mark.parametrize(
    ("path", "filename"),
    [
        ("../outside", ""),
        ("a/../../b", ""),
        ("a\x07b", ""),
        ("a/.git", ""),
        ("apps/hello", "../../../etc/passwd"),
        ("apps/hello", "app\n.yaml"),
        ("apps/hello", "a\0b"),
        ("apps/hello", "/etc/passwd"),
    ],
)
async def test_a_path_that_leads_out_of_the_repository_is_refused(
    plane: ServedControlPlane, path: str, filename: str
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    wanted = plane.build.git_path(path)
    wanted.config_filename = filename

    refused = await call_refused(
        plane.admin.api.AddApplication,
        pb.AddApplicationRequest(name="x", piped_id=agent.id, git_path=wanted),
    )
    assert refused.status == "INVALID_ARGUMENT"
    assert "is not inside the repository" in str(refused)
    if filename:
        for method, request in (
            (
                plane.admin.api.RenameApplicationConfigFile,
                pb.RenameApplicationConfigFileRequest(
                    application_ids=[application_id], new_filename=filename
                ),
            ),
            (
                plane.admin.api.UpdateApplication,
                pb.UpdateApplicationRequest(
                    application_id=application_id, piped_id=agent.id, git_path=wanted
                ),
            ),
        ):
            assert (await call_refused(method, request)).status == "INVALID_ARGUMENT"


async def test_a_path_that_begins_with_a_dash_is_a_path(plane: ServedControlPlane) -> None:
    """Whoever gives it to a program says that no options follow."""
    agent = await plane.agent()

    await call(
        plane.admin.api.AddApplication,
        pb.AddApplicationRequest(
            name="x", piped_id=agent.id, git_path=plane.build.git_path("-rf/app")
        ),
    )
