# SPDX-License-Identifier: Apache-2.0
"""Sealed logs through the faces of a server, with objects in a folder and in a bucket."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest

from pipecd_controlplane.ops.objects import seal_logs
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.usecases import sessions
from pipecd_test_support.aws.lab import AwsLab, run_aws_lab
from pipecd_test_support.buckets import BucketMaker
from pipecd_test_support.controlplane_process import RunServer
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.served_settings import PlaneWith
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipecd.api import access_pb2, api_pb2, logs_pb2
from pipecd_wire.pipecd.api.api_pb2_grpc import DeploymentServiceStub
from pipecd_wire.pipecd.api.logs_pb2_grpc import StageLogServiceStub
from pipecd_wire.rpc import CallError, call, stream
from pipecd_wire.rpc.frames import frame
from pipecd_wire.webservice import service_pb2 as webservice

KEY = LogKey(deployment_id="deployment", stage_id="s1")
HERE: dict[str, Any] = {"deployment_id": "deployment", "stage_id": "s1"}
LINES = 3000


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsLab]:
    with run_aws_lab(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def buckets(lab: AwsLab, tmp_path: Path) -> BucketMaker:
    return BucketMaker(lab.url, tmp_path)


@pytest.fixture(params=["folder", "bucket"])
async def sealed(
    request: pytest.FixtureRequest, plane_with: PlaneWith, buckets: BucketMaker
) -> AsyncIterator[ServedControlPlane]:
    """A server with one deployment, whose only log is sealed."""
    settings = {"blobs": buckets.describe()} if request.param == "bucket" else {}
    async with plane_with(**settings) as plane:
        stage = plane.build.stage("s1", status=deployment_pb2.STAGE_SUCCESS)
        await plane.stores.deployments.add(
            plane.build.deployment(id="deployment", project_id="default", stages=[stage])
        )
        for start in range(0, LINES, 100):
            blocks = [
                LogBlock(index=number, log=f"line {number} {'x' * 200}", created_at=1)
                for number in range(start + 1, start + 101)
            ]
            await plane.stores.stage_logs.append(
                "default", KEY, blocks, completed=start + 100 == LINES
            )
        assert plane.stores.blobs is not None
        assert await seal_logs(plane.stores, plane.stores.blobs) == 1
        yield plane


async def lose_object(plane: ServedControlPlane) -> None:
    assert plane.stores.blobs is not None
    [entry] = [each async for each in plane.stores.blobs.iterate()]
    await plane.stores.blobs.delete(entry.key)


async def download(plane: ServedControlPlane, client: httpx2.AsyncClient) -> httpx2.Response:
    return await client.get(
        f"http://{plane.address}/download/stage-log?deployment=deployment&stage=s1",
        headers={"authorization": f"API-KEY {plane.admin.key}"},
    )


async def test_every_face_shows_a_sealed_log(
    sealed: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    stub = StageLogServiceStub(sealed.admin.channel)
    got = await call(
        stub.ReadStageLog, logs_pb2.ReadStageLogRequest(**HERE, first_line=2001, count=2)
    )
    assert [block.index for block in got.blocks] == [2001, 2002]
    found = await call(
        stub.SearchStageLog, logs_pb2.SearchStageLogRequest(**HERE, text="line 2999 ")
    )
    assert [each.line for each in found.matches] == [2999]
    text = (await download(sealed, client)).text
    assert text.count("\n") == LINES
    assert text.startswith("line 1 x")
    request = apiservice.ListStageLogsRequest(deployment_id="deployment")
    whole = await call(sealed.admin.api.ListStageLogs, request)
    assert len(whole.stage_logs["s1"].blocks) == LINES
    follow = DeploymentServiceStub(sealed.admin.channel).FollowStageLog(
        api_pb2.FollowStageLogRequest(**HERE)
    )
    followed = [block.index async for part in follow for block in part.blocks]
    assert followed == list(range(1, LINES + 1))


SAID_OF_LOSS = "the log of the stage 's1' is lost: the object 'stage-logs/"


@contextmanager
def expect_loss() -> Iterator[None]:
    """Whatever is called in the block says that the log is lost."""
    with pytest.raises(CallError) as lost:
        yield
    assert lost.value.status == "DATA_LOSS"
    assert lost.value.message.startswith(SAID_OF_LOSS)


async def test_every_face_says_that_a_log_is_lost(
    sealed: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    await lose_object(sealed)

    stub = StageLogServiceStub(sealed.admin.channel)
    with expect_loss():
        await call(stub.ReadStageLog, logs_pb2.ReadStageLogRequest(**HERE))
    with expect_loss():
        await call(stub.SearchStageLog, logs_pb2.SearchStageLogRequest(**HERE, text="line"))
    following = api_pb2.FollowStageLogRequest(**HERE)
    parts = stream(sealed.admin.deployments.FollowStageLog, following)
    async with aclosing(parts):
        with expect_loss():
            await anext(parts)
    answer = await download(sealed, client)
    assert answer.status_code == 500
    assert answer.text.startswith(SAID_OF_LOSS)
    request = apiservice.ListStageLogsRequest(deployment_id="deployment")
    whole = await call(sealed.admin.api.ListStageLogs, request)
    [block] = whole.stage_logs["s1"].blocks
    assert block.log.startswith(SAID_OF_LOSS)
    assert block.created_at > time.time() - 600  # seen also by who wants only new lines


async def test_a_browser_is_told_that_a_log_is_lost(
    sealed: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    await lose_object(sealed)
    identity = sessions.UserIdentity(
        subject="ada", via=access_pb2.Session.OIDC, roles=("Viewer",), groups=()
    )
    now = int(time.time())
    token = await sessions.start(sealed.stores, "default", identity, now=lambda: now)

    answer = await client.post(
        f"http://{sealed.address}/grpc.service.webservice.WebService/GetStageLog",
        content=frame(webservice.GetStageLogRequest(**HERE).SerializeToString()),
        headers={
            "content-type": "application/grpc-web+proto",
            "x-grpc-web": "1",
            "cookie": f"token={token}",
        },
    )

    told = {**answer.headers, **read_trailers(answer.content)}
    assert told["grpc-status"] == "15"  # DATA_LOSS
    assert unquote(told["grpc-message"]).startswith(SAID_OF_LOSS)


def read_trailers(body: bytes) -> dict[str, str]:
    """Returns the last frame of a gRPC-Web answer, if it has one."""
    lines = body[5:].decode().splitlines() if body[:1] == b"\x80" else []
    return {
        name.strip().lower(): text.strip() for name, _, text in (x.partition(":") for x in lines)
    }


async def test_a_stream_says_that_a_log_is_lost_and_goes_on(sealed: ServedControlPlane) -> None:
    """How long the log is needs no object: a page that asks for new lines only is told that."""
    await lose_object(sealed)
    logs = [api_pb2.FollowedLog(**HERE, first_line=1), api_pb2.FollowedLog(**HERE)]
    request = api_pb2.WatchChangesRequest(logs=logs, keep_alive_seconds=1)
    responses = stream(sealed.admin.project.WatchChanges, request)

    async with aclosing(responses):
        first = {new.place: new for new in (await anext(responses)).new_lines}
        assert first[0].refusal.startswith(SAID_OF_LOSS)
        assert (first[1].total_lines, first[1].refusal) == (LINES, "")
        assert (await anext(responses)).cursor


@pytest.mark.parametrize("sealed", ["folder"], indirect=True)
async def test_a_store_that_is_away_is_said_by_a_server_that_was_reached(
    sealed: ServedControlPlane, tmp_path: Path
) -> None:
    (sealed.running.data_dir / "blobs").rename(tmp_path / "away")
    stub = StageLogServiceStub(sealed.admin.channel)

    with pytest.raises(CallError) as away:
        await call(stub.ReadStageLog, logs_pb2.ReadStageLogRequest(**HERE))

    assert away.value.status == "UNAVAILABLE"
    assert away.value.is_answer


async def test_a_download_that_breaks_off_says_so_at_its_end(
    sealed: ServedControlPlane, client: httpx2.AsyncClient
) -> None:
    blobs = sealed.stores.blobs
    assert blobs is not None
    first = {each.key async for each in blobs.iterate()}
    long = [LogBlock(index=9000, log="y" * 2_000_000, created_at=1)]
    last = [LogBlock(index=9001, log="the end", created_at=1)]
    for blocks in (long, last):
        await sealed.stores.stage_logs.append("default", KEY, blocks, completed=True, reopen=True)
    assert await seal_logs(sealed.stores, blobs) == 1
    [entry] = [each async for each in blobs.iterate() if each.key not in first]
    data = await blobs.get(entry.key)
    await blobs.put(entry.key, data[:-1] + b"?", replace=True)

    answer = await download(sealed, client)

    assert answer.status_code == 200
    assert answer.text.startswith("line 1 x")
    assert "yyyy" in answer.text
    assert "is damaged" in answer.text.splitlines()[-1]


async def test_a_server_with_a_bucket_starts_from_its_configuration(
    server: RunServer, buckets: BucketMaker, lab: AwsLab, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n  filestore:\n"
        "    type: MINIO\n    config:\n"
        f"      endpoint: {lab.url}\n      bucket: from-config\n      autoCreateBucket: true\n"
        f"      accessKeyFile: {buckets.access_key_file}\n"
        f"      secretKeyFile: {buckets.secret_key_file}\n"
    )

    async with server(tmp_path / "data", "--config-file", str(config)) as running:
        assert running.lines[0].startswith("pipecd server listening on ")

    assert not (tmp_path / "data" / "blobs").exists()
    listed = lab.make_client("s3").list_objects_v2(Bucket="from-config")
    assert [each["Key"] for each in listed["Contents"]] == ["pipecd-blobs"]
