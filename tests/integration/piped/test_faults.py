# SPDX-License-Identifier: Apache-2.0
"""What goes wrong is a sentence where its reader looks, and piped lives."""

import asyncio
import shutil
import stat
from typing import Any

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.model import deployment_pb2 as pb

SCRIPT = {"name": "SCRIPT_RUN", "with": {"run": "true"}}


async def failed(client: SiteClient, deployment_id: str) -> str:
    ended = await client.completed(deployment_id)
    assert ended.status == pb.DEPLOYMENT_FAILURE
    return str(ended.status_reason)


async def still_deploys(site: PipedSite, client: SiteClient, path: str = "good") -> None:
    """piped lives: another application is deployed as if nothing had happened."""
    commit = site.commit_application(path, [SCRIPT])
    ended = await client.completed(await client.deploy(path, commit))
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason


@pytest.mark.parametrize(
    ("path", "file", "sentence"),
    [
        pytest.param("broken", "spec: [", "app.pipecd.yaml:2:1: ", id="broken YAML"),
        pytest.param(
            "misspelt",
            [{"name": "SCRIPT_RUM", "with": {"run": "true"}}],
            "no plugin offers the stage 'SCRIPT_RUM' (did you mean 'SCRIPT_RUN'?)",
            id="unknown stage",
        ),
        pytest.param(
            "kubernetes",
            [{"name": "K8S_SYNC"}],
            "no plugin offers the stage 'K8S_SYNC' (add its plugin to the piped config)",
            id="no plugin for it",
        ),
        pytest.param(
            "options", [{"name": "SCRIPT_RUN", "with": {}}], "run", id="a fault the plugin finds"
        ),
    ],
)
async def test_a_fault_in_the_application_file_is_the_deployments_reason(
    path: str,
    file: str | list[dict[str, Any]],
    sentence: str,
    shared_site: PipedSite,
    shared_client: SiteClient,
) -> None:
    if isinstance(file, str):
        commit = shared_site.commit({f"{path}/app.pipecd.yaml": file})
    else:
        commit = shared_site.commit_application(path, file)

    reason = await failed(shared_client, await shared_client.deploy(path, commit))

    assert sentence in reason
    await still_deploys(shared_site, shared_client, f"good-{path}")


async def test_a_commit_without_the_applications_folder_is_the_deployments_reason(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    before = shared_site.commit({"README": "before there was an application"})

    reason = await failed(shared_client, await shared_client.deploy("nowhere", before))

    assert "nowhere" in reason
    assert before[:7] in reason


async def test_a_plugin_that_exits_at_start_is_named_with_its_last_words(
    site: PipedSite, client: SiteClient
) -> None:
    plugin = executable(site, "#!/bin/sh\necho 'cannot find my licence' >&2\nexit 7\n")
    site.configure("scriptrun", {"name": "broken", "url": f"file://{plugin}", "port": pick_port()})
    site.start()

    states = await client.plugins_are(broken="FAILED", scriptrun="READY")

    assert "7" in states["broken"].reason
    assert "cannot find my licence" in states["broken"].last_output
    await still_deploys(site, client)


async def test_a_plugin_that_never_answers_does_not_keep_the_others_from_work(
    site: PipedSite, client: SiteClient
) -> None:
    """Its stages are unknown: those who need them are told that it is not ready."""
    plugin = executable(site, "#!/bin/sh\nexec sleep 600\n")
    site.configure("scriptrun", {"name": "mute", "url": f"file://{plugin}", "port": pick_port()})
    site.start()

    await client.plugins_are(mute="STARTING", scriptrun="READY")
    await still_deploys(site, client, "meanwhile")

    states = await client.plugins_are(mute="FAILED", scriptrun="READY")
    assert "30s" in states["mute"].reason
    commit = site.commit_application("web", [{"name": "MUTE"}])
    reason = await failed(client, await client.deploy("web", commit))
    assert "no plugin offers the stage 'MUTE'" in reason
    assert "the plugin 'mute' is not ready" in reason
    await still_deploys(site, client)


async def test_a_plugin_that_is_not_installed_is_named(site: PipedSite, client: SiteClient) -> None:
    site.configure("scriptrun", "typo")
    site.start()

    states = await client.plugins_are(typo="FAILED", scriptrun="READY")

    assert "pipecd-plugin-typo" in states["typo"].reason
    await still_deploys(site, client)


async def test_a_wrong_key_ends_piped_with_a_sentence(site: PipedSite) -> None:
    site.key = "wrong.key"
    site.configure("wait")
    site.start()

    assert await site.ended() == 4

    last = site.log_text().splitlines()[-1]
    assert last.startswith("error: the control plane at ")
    assert "check projectID, pipedID and the piped key" in last


async def test_a_configuration_that_cannot_be_used_ends_piped_with_all_its_faults(
    site: PipedSite,
) -> None:
    file = site.configure("wait")
    file.write_text("apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec:\n  projectID: p\n")
    site.start()

    assert await site.ended() == 2

    assert "pipedID" in site.log_text()
    assert "apiAddress" in site.log_text()
    assert "Traceback" not in site.log_text()


async def test_a_second_piped_on_the_same_data_folder_is_refused(
    site: PipedSite, client: SiteClient
) -> None:
    site.configure("wait")
    site.start()
    await client.plugins_are(wait="READY")
    first = site.require_process()
    site.log = site.folder / "second.log"

    site.start()

    assert await site.ended() == 1
    assert f"is used by another piped, process {first.pid}" in site.log_text()
    assert first.poll() is None
    site.process = first


async def test_a_git_remote_that_is_gone_keeps_nothing_else_from_work(
    site: PipedSite, client: SiteClient
) -> None:
    """What is in the mirror goes on; what needs the remote says that it is away."""
    commit = site.commit_application("web", [SCRIPT])
    site.configure(
        "scriptrun",
        repositories=[
            {"repoId": "example", "remote": str(site.repository), "branch": "main"},
            {"repoId": "gone", "remote": str(site.folder / "gone"), "branch": "main"},
        ],
    )
    site.start()
    application_id = await client.register("web")
    ended = await client.completed(await client.deploy("web", commit, application_id))
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason

    shutil.move(site.repository, site.folder / "moved")
    again = await client.completed(await client.deploy("web", commit, application_id))
    lost = await failed(client, await client.deploy("web", "f" * 40, application_id))

    assert again.status == pb.DEPLOYMENT_SUCCESS, again.status_reason
    assert str(site.repository) in lost
    assert site.alive()


async def test_a_control_plane_that_is_away_at_the_start_is_waited_for(site: PipedSite) -> None:
    """Plugins are up meanwhile; piped does not end."""
    site.configure("wait", apiAddress="127.0.0.1:1")
    site.start()
    async with asyncio.timeout(60):
        while not any(event["event"] == "plugin.ready" for event in site.events()):
            assert site.alive(), site.log_text()
            await asyncio.sleep(0.05)  # between looks at another process's output

    assert await site.stop() == 0


def executable(site: PipedSite, text: str) -> Any:
    file = site.folder / "plugin"
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file
