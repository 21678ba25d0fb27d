# SPDX-License-Identifier: Apache-2.0
"""Cancelled, stopped, killed: the state stays whole, the lock is released, nothing runs twice."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable
from pathlib import Path

from pipecd_sdk import StageStatus
from pipecd_sdk.testing.pids import is_alive, wait_for_pid
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import (
    example_deployment,
    executable,
    start_plugin,
)
from pipecd_test_support.terraform_lab import TerraformLab, data
from pipecd_test_support.web_server import Answer, Question, WebServer
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.rpc import CallError

LIMIT_SECONDS = 120.0
COMMAND = [executable("pipecd-plugin-terraform")]
# Counts its runs, tells its pid, and waits for a sign.
SLOW = "echo run >> runs; echo $$ > pid.new; mv pid.new pid; while ! [ -e go ]; do sleep 0.05; done"


async def test_a_cancelled_apply_is_interrupted_and_releases_its_lock(lab: TerraformLab) -> None:
    folder = lab.write("app", data() + data("slow", run=SLOW))
    harness = lab.harness(folder)

    running = asyncio.create_task(harness.run("TERRAFORM_SYNC"))
    pid = await wait_for_pid(folder / "pid", limit=LIMIT_SECONDS)
    assert lab.is_locked()
    running.cancel()
    await asyncio.wait([running])

    assert running.cancelled()
    assert not is_alive(pid)
    assert not lab.is_locked()
    assert set(lab.values()) == {"terraform_data.one", "terraform_data.slow"}, "the state is whole"
    assert "Cancelled: ending terraform apply and all it started" in harness.text
    assert "execution halted" in harness.text, "it ended by itself, and said so"

    back = await harness.run("TERRAFORM_ROLLBACK", index=1)
    assert back.status is StageStatus.FAILURE
    assert "no commit to go back to" in back.reason


async def test_an_apply_that_nobody_can_account_for_is_not_run_again(
    lab: TerraformLab, scripts: Path
) -> None:
    """The shim and the program are killed, as when a machine loses its power."""
    folder = lab.write("app", data("slow", run=SLOW))
    harness = lab.harness(folder)
    running = asyncio.create_task(harness.run("TERRAFORM_SYNC"))
    await wait_for_pid(folder / "pid", limit=LIMIT_SECONDS)
    (started,) = await asyncio.to_thread(lambda: list(scripts.glob("deployment-1/*/started")))
    os.kill(int(started.read_text().split()[0]), signal.SIGKILL)

    result = await running

    assert result.status is StageStatus.FAILURE
    assert "nobody knows how far it came, and it is not run again" in result.reason
    assert (folder / "runs").read_text() == "run\n"
    assert "The state is not locked" in harness.text or "the state is locked by" in result.reason
    again = await harness.run("TERRAFORM_SYNC")
    assert again.status is StageStatus.FAILURE
    assert (folder / "runs").read_text() == "run\n"


def find_apply(pid: int) -> int:
    """The process of Terraform's apply above a process that it has started."""
    while True:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[1:2] == [b"apply"]:
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_a_lock_that_a_killed_apply_has_left_is_named(lab: TerraformLab) -> None:
    """The program alone is killed, as when the memory of a machine is used up."""
    with LockServer() as server:
        folder = lab.write("app", "")
        backend = f'terraform {{\n  backend "http" {{\n{server.settings}  }}\n}}\n'
        (folder / "main.tf").write_text(backend + data("slow", run=SLOW))
        harness = lab.harness(folder, target={"backendConfig": []})
        running = asyncio.create_task(harness.run("TERRAFORM_SYNC"))
        pid = await wait_for_pid(folder / "pid", limit=LIMIT_SECONDS)
        os.kill(find_apply(pid), signal.SIGKILL)
        (folder / "go").touch()

        result = await running

    assert result.status is StageStatus.FAILURE
    assert "terraform apply was ended by signal 9; the state is locked by" in result.reason
    assert f"force-unlock {server.lock['ID']}" in result.reason


class LockServer(WebServer):
    """A state over HTTP, with a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.state = b""
        self.lock: dict[str, str] = {}

    @property
    def settings(self) -> str:
        """The lines of a backend that keeps its state here."""
        names = {"address": "state", "lock_address": "lock", "unlock_address": "lock"}
        lines = [f'    {key} = "{self.url}/{path}"\n' for key, path in names.items()]
        methods = '    lock_method = "PUT"\n    unlock_method = "DELETE"\n'
        return "".join([*lines, methods, "    retry_max = 0\n"])

    def find(self, question: Question) -> Answer:
        match question.method:
            case "PUT" if self.lock:
                return Answer(body=json.dumps(self.lock).encode(), status=423)
            case "PUT":
                self.lock = json.loads(question.body)
            case "DELETE":
                self.lock = {}
            case "POST":
                self.state = question.body
            case _:
                return Answer(body=self.state, status=200 if self.state else 404)
        return Answer()


def terraform(lab: TerraformLab) -> dict[str, object]:
    return {
        "config": {"killGrace": "20s"},
        "deployTargets": [{"name": "dev", "config": lab.target}],
    }


def deployment() -> pb.Deployment:
    made = example_deployment()
    made.deploy_targets_by_plugin["terraform"].deploy_targets.append("dev")
    return made


async def lose(call: Awaitable[object]) -> None:
    try:
        await call
    except CallError:
        return
    raise AssertionError("the plugin was not killed in time")


async def test_an_apply_goes_on_when_its_plugin_is_killed_and_is_followed_by_the_next(
    lab: TerraformLab,
) -> None:
    folder = lab.write("app", data(run=SLOW))
    async with FakePiped() as piped:
        async with (
            start_plugin(piped, COMMAND, name="terraform", entry=terraform(lab)) as plugin,
            asyncio.TaskGroup() as tasks,
        ):
            call = plugin.execute("TERRAFORM_SYNC", directory=folder, deployment=deployment())
            tasks.create_task(lose(call))
            pid = await wait_for_pid(folder / "pid", limit=LIMIT_SECONDS)
            plugin.process.kill()
        assert is_alive(pid), "it outlives the plugin"
        assert lab.is_locked()

        async with start_plugin(piped, COMMAND, name="terraform", entry=terraform(lab)) as plugin:
            continued = asyncio.create_task(
                plugin.execute("TERRAFORM_SYNC", directory=folder, deployment=deployment())
            )
            await wait_for_log(piped, "begun by an earlier process")
            await asyncio.to_thread((folder / "go").touch)
            answer = await continued

    assert answer.status == pb.STAGE_SUCCESS
    assert (folder / "runs").read_text() == "run\n"
    assert lab.values() == {"terraform_data.one": "v1"}
    assert not lab.is_locked()
    lines = piped.log("stage-0").lines
    assert sum("Apply complete!" in line for line in lines) == 1
    assert sum("(local-exec): Executing" in line for line in lines) == 1, "nothing is said twice"


async def test_a_plan_whose_plugin_was_killed_is_made_again(lab: TerraformLab) -> None:
    folder = lab.write("app", "".join(data(f"r{number}") for number in range(60)))
    async with FakePiped() as piped:
        async with (
            start_plugin(piped, COMMAND, name="terraform", entry=terraform(lab)) as plugin,
            asyncio.TaskGroup() as tasks,
        ):
            call = plugin.execute("TERRAFORM_PLAN", {}, directory=folder, deployment=deployment())
            tasks.create_task(lose(call))
            await wait_for_log(piped, "terraform plan")
            plugin.process.kill()

        async with start_plugin(piped, COMMAND, name="terraform", entry=terraform(lab)) as plugin:
            piped.reopen_log("stage-0")
            answer = await plugin.execute(
                "TERRAFORM_PLAN", {}, directory=folder, deployment=deployment()
            )
            applied = await plugin.execute(
                "TERRAFORM_APPLY", {}, index=1, directory=folder, deployment=deployment()
            )

    assert answer.status == pb.STAGE_SUCCESS
    assert applied.status == pb.STAGE_SUCCESS
    assert not lab.is_locked()


async def test_a_plugin_that_is_asked_to_stop_leaves_the_apply_running(lab: TerraformLab) -> None:
    folder = lab.write("app", data(run=SLOW))
    async with FakePiped() as piped:
        async with (
            start_plugin(
                piped,
                COMMAND,
                name="terraform",
                entry=terraform(lab),
                flags=["--grace-period", "1s"],
            ) as plugin,
            asyncio.TaskGroup() as tasks,
        ):
            call = plugin.execute("TERRAFORM_SYNC", directory=folder, deployment=deployment())
            tasks.create_task(lose(call))
            pid = await wait_for_pid(folder / "pid", limit=LIMIT_SECONDS)
            plugin.process.terminate()
            await plugin.exit_code()
        assert is_alive(pid)

        async with start_plugin(piped, COMMAND, name="terraform", entry=terraform(lab)) as plugin:
            await asyncio.to_thread((folder / "go").touch)
            answer = await plugin.execute(
                "TERRAFORM_SYNC", directory=folder, deployment=deployment()
            )

    assert answer.status == pb.STAGE_SUCCESS
    assert (folder / "runs").read_text() == "run\n"


async def wait_for_log(piped: FakePiped, text: str) -> None:
    await piped.wait_until(
        lambda: any(text in line for line in piped.log("stage-0").lines), limit=LIMIT_SECONDS
    )
