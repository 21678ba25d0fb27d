# SPDX-License-Identifier: Apache-2.0
"""The control plane as a whole: first start, later starts, and the end."""

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from pipecd_controlplane.app import control_plane
from pipecd_controlplane.settings import ServerSettings
from pipecd_controlplane.store.blobs.blob_store import BlobsRefusedError
from pipecd_controlplane.store.blobs.config import FOLDER_NAME, BlobFolder
from pipecd_model.errors import ConfigError, StateError
from pipecd_test_support.chosen_store import find_postgres
from pipecd_test_support.controlplane_server import Serve, ServedControlPlane
from pipecd_test_support.moved_databases import fill_folder
from pipecd_test_support.waiting import Soon
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.rpc import CallError, call, stream


def settings_for(folder: Path, **given: Any) -> ServerSettings:
    return ServerSettings(data_dir=folder, postgres=find_postgres(folder), **given)


async def http(address: str, path: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    writer.write(request.encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return head.splitlines()[0].split(" ", 1)[1], body


async def test_the_first_start_makes_a_project_and_a_key(tmp_path: Path) -> None:
    async with control_plane(settings_for(tmp_path / "new")) as running:
        key_file = running.admin_key_file
        assert await running.stores.projects.ids() == ["default"]

    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert key_file.read_text().count("\n") == 1


async def test_a_later_start_keeps_key_and_data(serve: Serve, tmp_path: Path) -> None:
    async with serve(tmp_path) as plane:
        key = plane.admin.key
        agent = await plane.agent()
        application_id = await plane.application(agent)

    async with serve(tmp_path) as plane:
        assert plane.admin.key == key
        answer = await call(
            plane.admin.api.GetApplication,
            api.GetApplicationRequest(application_id=application_id),
        )
        assert answer.application.name == "hello"


async def test_the_project_of_a_new_folder_can_be_named(tmp_path: Path) -> None:
    async with control_plane(settings_for(tmp_path, project_id="shop")) as running:
        assert await running.stores.projects.ids() == ["shop"]

    with pytest.raises(ConfigError, match="has no project 'other'"):
        async with control_plane(settings_for(tmp_path, project_id="other")):
            pass
    async with control_plane(settings_for(tmp_path)) as running:
        assert await running.stores.projects.ids() == ["shop"]


async def test_a_first_start_that_was_cut_short_is_begun_again(
    serve: Serve, tmp_path: Path
) -> None:
    """The key file was written, the commit was not: the file must not hold a key that is none."""
    (tmp_path / "admin.key").write_text("an.old-key\n")

    async with serve(tmp_path) as plane:
        await call(plane.admin.api.ListApplications, api.ListApplicationsRequest())


async def test_the_small_pages_are_on_the_same_address(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, console_dir=tmp_path / "not-built")
    async with control_plane(settings) as running:
        assert await http(running.address, "/healthz") == ("200 OK", "ok")
        status, body = await http(running.address, "/version")
        assert (status, body.split()[0]) == ("200 OK", "pipecd")
        status, body = await http(running.address, "/")
        assert status == "200 OK"
        assert "console is not built yet" in body
        assert (await http(running.address, "/nothing"))[0] == "404 Not Found"


async def test_a_server_does_not_take_the_place_of_a_share_for_the_share(tmp_path: Path) -> None:
    """Sealed there, logs would be hidden once the share is mounted."""
    await fill_folder(tmp_path / "data")
    share = tmp_path / "share"
    (tmp_path / "data" / FOLDER_NAME).rename(share)
    settings = ServerSettings(data_dir=tmp_path / "data", blobs=BlobFolder(folder=share))
    async with control_plane(settings):
        pass

    share.rename(tmp_path / "away")
    share.mkdir()
    with pytest.raises(BlobsRefusedError, match="is not where this database has its objects"):
        async with control_plane(settings):
            pass
    assert list(share.iterdir()) == []
    # What a server needs that started there before the share was mounted.
    (share / ".incoming").mkdir()
    with pytest.raises(BlobsRefusedError, match="it lacks their mark"):
        async with control_plane(settings):
            pass


async def test_a_server_without_its_configuration_does_not_serve_logs_as_missing(
    tmp_path: Path,
) -> None:
    """Without a word objects would be in the data folder."""
    await fill_folder(tmp_path / "data")
    (tmp_path / "data" / FOLDER_NAME).rename(tmp_path / "blobs")
    blobs = BlobFolder(folder=tmp_path / "blobs")
    async with control_plane(ServerSettings(data_dir=tmp_path / "data", blobs=blobs)):
        pass

    with pytest.raises(BlobsRefusedError, match="is not where this database has its objects"):
        async with control_plane(ServerSettings(data_dir=tmp_path / "data")):
            pass


async def test_a_taken_address_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with control_plane(settings_for(tmp_path / "one")) as running:
        port = int(running.address.rpartition(":")[2])
        folder = tmp_path / "two"
        for settings, flag in (
            (settings_for(folder, port=port), "--listen"),
            (settings_for(folder, admin_port=port), "--admin-port"),
        ):
            with pytest.raises(StateError, match="the port is taken") as caught:
                async with control_plane(settings):
                    pass
            assert flag in caught.value.hint


async def test_a_stop_does_not_wait_for_those_who_watch(
    plane: ServedControlPlane, soon: Soon
) -> None:
    """An agent is told to come again; a running watch holds up nothing."""
    agent = await plane.agent()
    watch = stream(agent.push.Watch, push_pb2.WatchRequest(instance_id="i", data_folder_id="f"))
    await soon(anext(watch))

    plane.running.bus.stop()

    with pytest.raises(CallError) as caught:
        await soon(anext(watch))
    assert caught.value.status == "UNAVAILABLE"
    assert "the control plane is stopping" in caught.value.message
