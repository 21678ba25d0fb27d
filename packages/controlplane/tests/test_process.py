# SPDX-License-Identifier: Apache-2.0
"""The process `pipecd server`: what it prints, how it ends, what a kill leaves behind."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_process import RunServer
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.apiservice import service_pb2_grpc as api_grpc
from pipecd_wire.model import common_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.pipedservice import service_pb2_grpc as pipedservice_grpc
from pipecd_wire.rpc import CallError, call, connect

LIMIT = 60.0
PIPECD = (sys.executable, "-c", "from pipecd_controlplane.cli import main; main()")


async def run(*arguments: str) -> tuple[int, str]:
    """Run pipecd to its end: exit code, and what it said."""
    process = await asyncio.create_subprocess_exec(
        *PIPECD,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    async with asyncio.timeout(LIMIT):
        output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


@asynccontextmanager
async def client(folder: Path, address: str) -> AsyncIterator["api_grpc.APIServiceAsyncStub"]:
    key = (folder / "admin.key").read_text().strip()
    async with connect(address, metadata=lambda: [("authorization", f"API-KEY {key}")]) as channel:
        yield api_grpc.APIServiceStub(channel)


async def test_the_first_lines_say_where_everything_is(server: RunServer, tmp_path: Path) -> None:
    async with server(tmp_path / "data") as running:
        assert running.lines == [
            f"pipecd server listening on {running.address}",
            f"data folder {tmp_path / 'data'}",
            f"admin API key file {tmp_path / 'data' / 'admin.key'}",
        ]
        assert running.address.startswith("127.0.0.1:")
    (tmp_path / "data" / "admin.key").unlink()  # as where another server has made the project
    async with server(tmp_path / "data") as running:
        assert running.lines[2].startswith("no admin API key file here")


async def test_a_key_that_somebody_has_taken_away_is_not_announced(
    server: RunServer, tmp_path: Path
) -> None:
    async with server(tmp_path):
        pass
    (tmp_path / "admin.key").unlink()

    async with server(tmp_path) as running:
        assert running.lines == [
            f"pipecd server listening on {running.address}",
            f"data folder {tmp_path}",
            "no admin API key file here: the first start wrote it elsewhere, or it is gone",
        ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_gracefully(
    server: RunServer, tmp_path: Path, number: signal.Signals
) -> None:
    async with server(tmp_path) as running:
        async with client(tmp_path, running.address) as stub:
            await call(stub.RegisterPiped, api.RegisterPipedRequest(name="one"))
        running.process.send_signal(number)

        assert await running.wait_ended() == 0
    # The last one to close has moved everything from the log into the file.
    assert not (tmp_path / "pipecd.db-wal").exists()


async def test_while_it_is_drained_it_serves_and_says_that_it_is_not_ready(
    server: RunServer, tmp_path: Path
) -> None:
    """A load balancer has time to notice; a second signal ends the wait."""
    async with (
        server(tmp_path, "--drain-period", "600") as running,
        httpx2.AsyncClient(base_url=f"http://{running.address}") as browser,
        client(tmp_path, running.address) as stub,
    ):
        assert (await browser.get("/readyz")).status_code == 200
        running.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT):
            while (await browser.get("/readyz")).status_code == 200:
                pass
        await call(stub.RegisterPiped, api.RegisterPipedRequest(name="late"))
        assert (await browser.get("/readyz")).text == "it is stopping\n"
        running.process.send_signal(signal.SIGTERM)

        assert await running.wait_ended() == 0


async def test_what_was_acknowledged_survives_a_kill(server: RunServer, tmp_path: Path) -> None:
    """Killed in the middle of writing: every piped whose id was answered is there."""
    acknowledged: list[str] = []

    async def register(stub: "api_grpc.APIServiceAsyncStub", number: int) -> None:
        answer = await call(
            stub.RegisterPiped, api.RegisterPipedRequest(name=f"piped {number}"), deadline=LIMIT
        )
        acknowledged.append(answer.id)

    async def register_until_it_dies(stub: "api_grpc.APIServiceAsyncStub") -> None:
        try:
            while True:
                await register(stub, len(acknowledged))
        except CallError:
            return

    async with server(tmp_path) as running:
        async with client(tmp_path, running.address) as stub, asyncio.TaskGroup() as tasks:
            await register(stub, -1)
            writers = [tasks.create_task(register_until_it_dies(stub)) for _ in range(4)]
            async with asyncio.timeout(LIMIT):
                while len(acknowledged) < 10:
                    await asyncio.wait(writers, timeout=0.01)
            running.process.kill()
        await running.wait_ended()

    async with server(tmp_path) as again, client(tmp_path, again.address) as stub:
        for piped_id in acknowledged:
            found = await call(stub.GetPiped, api.GetPipedRequest(piped_id=piped_id))
            assert found.piped.id == piped_id


async def test_acknowledged_log_blocks_survive_a_kill(
    server: RunServer, tmp_path: Path, build: MessageBuilder
) -> None:
    """And what the agent sends again, because the answer was lost, is there once."""
    acknowledged = 0
    async with server(tmp_path) as running:
        async with client(tmp_path, running.address) as stub, agent(stub, running.address) as piped:
            repository = common_pb2.ApplicationGitRepository(id="repo")
            meta = pipedservice.ReportPipedMetaRequest(repositories=[repository])
            await call(piped.stub.ReportPipedMeta, meta)
            application = api.AddApplicationRequest(
                name="hello", piped_id=piped.id, git_path=build.git_path()
            )
            made = await call(stub.AddApplication, application)
            deployment = build.deployment(
                application_id=made.application_id,
                piped_id=piped.id,
                project_id="default",
                stages=[build.stage("s1")],
            )
            create = pipedservice.CreateDeploymentRequest(deployment=deployment)
            await call(piped.stub.CreateDeployment, create)

            async def write() -> None:
                nonlocal acknowledged
                try:
                    while True:
                        await call(piped.stub.ReportStageLogs, report(build, acknowledged))
                        acknowledged += 1
                except CallError:
                    return

            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(write())
                async with asyncio.timeout(LIMIT):
                    while acknowledged < 50:
                        await asyncio.wait([writing], timeout=0.01)
                running.process.kill()
        await running.wait_ended()

    async with server(tmp_path) as again, client(tmp_path, again.address) as stub:
        async with agent_with(piped.id, piped.key, again.address) as returned:
            await call(returned.stub.ReportStageLogs, report(build, acknowledged))
        logs = await call(stub.ListStageLogs, api.ListStageLogsRequest(deployment_id="d1"))
        indexes = [block.index for block in logs.stage_logs["s1"].blocks]
        assert indexes == list(range(acknowledged + 1))


def report(build: MessageBuilder, index: int) -> pipedservice.ReportStageLogsRequest:
    return pipedservice.ReportStageLogsRequest(
        deployment_id="d1", stage_id="s1", blocks=build.blocks(index)
    )


@dataclass
class Piped:
    id: str
    key: str
    stub: "pipedservice_grpc.PipedServiceAsyncStub"


@asynccontextmanager
async def agent(user: "api_grpc.APIServiceAsyncStub", address: str) -> AsyncIterator[Piped]:
    made = await call(user.RegisterPiped, api.RegisterPipedRequest(name="agent"))
    async with agent_with(made.id, made.key, address) as piped:
        yield piped


@asynccontextmanager
async def agent_with(piped_id: str, key: str, address: str) -> AsyncIterator[Piped]:
    pairs = [("authorization", f"PIPED-TOKEN default,{piped_id},{key}")]
    async with connect(address, metadata=lambda: pairs) as channel:
        yield Piped(piped_id, key, pipedservice_grpc.PipedServiceStub(channel))


async def test_a_second_process_on_the_folder_is_refused(server: RunServer, tmp_path: Path) -> None:
    async with server(tmp_path) as running:
        code, said = await run("server", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")

        assert code == 1
        assert said == (
            f"error: the data folder {str(tmp_path)!r} is in use by another pipecd"
            f" (process {running.process.pid})"
            " (stop that one, or name another folder with --data-dir)\n"
        )


@pytest.mark.sqlite
async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pipecd.db").write_bytes(b"garbage" * 1000)

    code, said = await run("server", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")

    assert code == 1
    assert said.startswith(f"error: cannot use the database {str(tmp_path / 'pipecd.db')!r}")
    assert "Traceback" not in said


async def test_a_taken_port_is_refused(server: RunServer, tmp_path: Path) -> None:
    async with server(tmp_path / "one") as running:
        code, said = await run(
            "server", "--data-dir", str(tmp_path / "two"), "--listen", running.address
        )

    assert code == 1
    assert "the port is taken" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("listen", ["8080", "localhost", "localhost:http", "localhost:70000", ""])
async def test_an_address_that_is_none_is_refused(tmp_path: Path, listen: str) -> None:
    code, said = await run("server", "--data-dir", str(tmp_path), "--listen", listen)

    assert code == 2
    assert "--listen wants HOST:PORT" in said


async def test_the_config_file_gives_the_public_address(server: RunServer, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\n"
        "spec:\n  address: https://pipecd.example\n  filestore:\n    type: GCS\n"
        "    config:\n      bucket: logs\n"
    )
    arguments = ("server", "--data-dir", str(tmp_path), "--config-file", str(config))
    code, said = await run(*arguments, "--listen", "127.0.0.1:0")
    assert code == 2
    assert "spec.filestore.type: GCS is not supported (use S3 or FOLDER)" in said

    config.write_text("apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n  adress: x\n")
    code, said = await run(*arguments, "--listen", "127.0.0.1:0")
    assert code == 2
    assert "adress" in said

    config.write_text("apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec: {}\n")
    async with server(tmp_path / "data", "--config-file", str(config)) as running:
        assert running.lines[0].startswith("pipecd server listening on ")


async def test_times_of_leases_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    times = ("--lease-time", "60", "--take-over-after", "30")
    code, said = await run("server", "--data-dir", str(tmp_path), *times)

    assert code == 2
    assert "--take-over-after must not be less than --lease-time" in said


async def test_help_and_version_help() -> None:
    code, said = await run("--help")
    assert code == 0
    for command in ("server", "version", "quickstart"):
        assert command in said

    code, said = await run("version")
    assert code == 0
    assert said.startswith("pipecd 0.")

    code, said = await run("server", "--help")
    assert code == 0
    assert "--data-dir" in said

    code, said = await run("server")
    assert code == 2
    assert "--data-dir" in said


async def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    certificate = tmp_path / "cert.pem"
    certificate.write_text("nothing of the kind")
    arguments = ("server", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")

    code, said = await run(*arguments, "--tls-cert", str(certificate))
    assert code == 2
    assert "--tls-cert and --tls-key belong together" in said

    code, said = await run(
        *arguments, "--tls-cert", str(certificate), "--tls-key", str(certificate)
    )
    assert code == 2
    assert "cannot use certificate" in said
    assert "Traceback" not in said
