# SPDX-License-Identifier: Apache-2.0
"""The executable `pipecd-plugin-scriptrun` as piped starts it: cancel, stop, interruption."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipecd_sdk.testing.pids import is_alive, wait_for_pid
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import (
    LaunchMode,
    PluginProcess,
    example_deployment,
    executable,
    start_plugin,
)
from pipecd_wire.model import deployment_pb2
from pipecd_wire.rpc import CallError

COMMAND = [executable("pipecd-plugin-scriptrun")]
MARKS = ("deployment-1", "scriptrun")
# Writes its pid, starts a daemon in a session of its own that ignores the request to end, waits.
STUBBORN = """
echo $$ > shell
setsid sh -c 'trap "" TERM; echo $$ > daemon; while :; do sleep 1; done' &
while ! [ -s daemon ]; do sleep 0.02; done
echo running
sleep 300
"""


@asynccontextmanager
async def scriptrun(
    piped: FakePiped,
    *,
    kill_grace: str = "300ms",
    grace: str = "30s",
    mode: LaunchMode = LaunchMode.DESCRIPTOR,
) -> AsyncIterator[PluginProcess]:
    async with start_plugin(
        piped,
        COMMAND,
        name="scriptrun",
        mode=mode,
        entry={"config": {"killGrace": kill_grace}},
        flags=["--grace-period", grace],
        environment={"PIPECD_ANYTHING": "secret"},
    ) as plugin:
        yield plugin


def runs(piped: FakePiped, line: str = "running") -> bool:
    return line in piped.log("s1").lines


@pytest.mark.parametrize(
    ("mode", "managed"),
    [(LaunchMode.DESCRIPTOR, True), (LaunchMode.COMMAND_LINE, False)],
    ids=["ours", "go"],
)
async def test_the_guides_example_runs(mode: LaunchMode, managed: bool, tmp_path: Path) -> None:
    options = {
        "env": {"MSG": "execute script1", "R_MSG": "rollback script1"},
        "run": "echo $MSG\nsleep 0.1\n",
        "onRollback": "echo $R_MSG\nsleep 0.1\n",
    }
    async with FakePiped(managed=managed) as piped, scriptrun(piped, mode=mode) as plugin:
        stages = await plugin.plan(("SCRIPT_RUN", options))
        forward = await plugin.execute("SCRIPT_RUN", options, stage_id="s1", directory=tmp_path)
        back = await plugin.execute(
            "SCRIPT_RUN_ROLLBACK", options, stage_id="s2", directory=tmp_path
        )

    assert [(each.name, each.index, each.rollback) for each in stages] == [
        ("SCRIPT_RUN", 0, False),
        ("SCRIPT_RUN_ROLLBACK", 0, True),
    ]
    assert (forward.status, back.status) == (
        deployment_pb2.STAGE_SUCCESS,
        deployment_pb2.STAGE_SUCCESS,
    )
    assert "execute script1" in piped.log("s1").lines
    assert "rollback script1" in piped.log("s2").lines
    marks = piped.deployment_metadata[MARKS]
    assert (marks["started-0"], marks["rollback-started-0"]) == ("_", "_")


async def test_the_rfcs_example_runs(tmp_path: Path) -> None:
    options = {
        "env": {"URL": "http://hook"},
        "runs": ["echo posting to $URL", "test -n $URL"],
        "runsOnRollback": ["echo failed to deploy"],
    }
    async with FakePiped() as piped, scriptrun(piped) as plugin:
        answer = await plugin.execute("SCRIPT_RUN", options, stage_id="s1", directory=tmp_path)

    assert answer.status == deployment_pb2.STAGE_SUCCESS
    assert "posting to http://hook" in piped.log("s1").lines


async def test_a_script_sees_its_context_and_none_of_our_secrets(tmp_path: Path) -> None:
    deployment = example_deployment()
    deployment.trigger.commander = "alice"
    options = {"run": "env > found"}
    async with FakePiped() as piped, scriptrun(piped) as plugin:
        await plugin.execute("SCRIPT_RUN", options, directory=tmp_path, deployment=deployment)

    lines = (tmp_path / "found").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    assert found["SR_TRIGGERED_COMMANDER"] == "alice"
    assert found["SR_REPOSITORY_URL"] == "https://git.example.com/shop.git"
    assert json.loads(found["SR_CONTEXT_RAW"])["labels"] == {"env": "dev"}
    assert {name for name in found if name.startswith("PIPECD_")} == {"PIPECD_SCRIPT_ID"}
    assert found["PWD"] == str(tmp_path)


async def test_after_a_cancel_nothing_of_the_script_runs_when_the_stage_has_ended(
    tmp_path: Path,
) -> None:
    async with FakePiped() as piped, scriptrun(piped) as plugin, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(
            plugin.execute("SCRIPT_RUN", {"run": STUBBORN}, stage_id="s1", directory=tmp_path)
        )
        await piped.wait_until(lambda: runs(piped))
        shell, daemon = [await wait_for_pid(tmp_path / name) for name in ("shell", "daemon")]
        assert is_alive(shell)
        assert is_alive(daemon)

        running.cancel()
        await plugin.wait_stage("s1")

        assert not is_alive(shell)
        assert not is_alive(daemon)
        assert piped.log("s1").sealed


async def test_sigterm_waits_for_a_running_script(tmp_path: Path) -> None:
    script = "echo ready; while ! [ -e go ]; do sleep 0.02; done; echo done"
    async with FakePiped() as piped, scriptrun(piped) as plugin, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(
            plugin.execute("SCRIPT_RUN", {"run": script}, stage_id="s1", directory=tmp_path)
        )
        await piped.wait_until(lambda: runs(piped, "ready"))

        plugin.process.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()

        answer = await running
        assert answer.status == deployment_pb2.STAGE_SUCCESS
        assert runs(piped, "done")
        assert await plugin.exit_code() == 0


async def test_a_second_sigterm_ends_the_script_and_it_is_not_run_again(tmp_path: Path) -> None:
    async with FakePiped() as piped:
        async with (
            scriptrun(piped, kill_grace="1h") as plugin,
            asyncio.TaskGroup() as tasks,
        ):
            executing = plugin.execute(
                "SCRIPT_RUN", {"run": STUBBORN}, stage_id="s1", directory=tmp_path
            )
            running = tasks.create_task(_status(executing))
            await piped.wait_until(lambda: runs(piped))
            shell, daemon = [await wait_for_pid(tmp_path / name) for name in ("shell", "daemon")]

            plugin.process.send_signal(signal.SIGTERM)
            await _stopping(plugin)
            assert is_alive(shell)
            plugin.process.send_signal(signal.SIGTERM)

            assert await running == "UNAVAILABLE"
            assert await plugin.exit_code() == 0
            assert not is_alive(shell)
            assert not is_alive(daemon)

        async with scriptrun(piped) as plugin:
            answer = await plugin.execute(
                "SCRIPT_RUN", {"run": "touch again"}, stage_id="s1", directory=tmp_path
            )

        assert answer.status == deployment_pb2.STAGE_FAILURE
        assert "interrupted" in answer.message
        assert answer.message in piped.log("s1").lines
        assert not (tmp_path / "again").exists()


async def test_a_script_longer_than_the_grace_period_goes_on_and_is_continued(
    tmp_path: Path,
) -> None:
    script = "echo ready; while ! [ -e go ]; do sleep 0.02; done; echo done; echo x >> ran"
    async with FakePiped() as piped:
        async with scriptrun(piped, grace="1s") as plugin, asyncio.TaskGroup() as tasks:
            executing = plugin.execute(
                "SCRIPT_RUN", {"run": script}, stage_id="s1", directory=tmp_path
            )
            running = tasks.create_task(_status(executing))
            await piped.wait_until(lambda: runs(piped, "ready"))

            plugin.process.send_signal(signal.SIGTERM)

            assert await running == "UNAVAILABLE"
            assert await plugin.exit_code() == 0
        assert not piped.log("s1").sealed

        (tmp_path / "go").touch()
        async with scriptrun(piped) as plugin:
            answer = await plugin.execute(
                "SCRIPT_RUN", {"run": script}, stage_id="s1", directory=tmp_path
            )

    assert answer.status == deployment_pb2.STAGE_SUCCESS
    assert (tmp_path / "ran").read_text() == "x\n"
    assert piped.log("s1").lines == [
        "Running:",
        f"  {script}",
        "ready",
        "done",
        "The script has succeeded",
    ]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"run": "echo {{ .encryptedSecrets.password }} | sudo -S su"}, "run"),
        ({"run": "true", "onRollback": "{{- .encryptedSecrets.x -}}"}, "onRollback"),
        ({"run": "true", "env": {"P": "{{ .encryptedSecrets.x }}"}}, "env.P"),
    ],
)
async def test_an_agent_that_opens_no_secrets_is_told_so_at_planning(
    options: dict[str, object], path: str
) -> None:
    """Running it with the raw text would hand the placeholder to the command as a password."""
    async with (
        FakePiped(managed=False) as piped,
        scriptrun(piped, mode=LaunchMode.COMMAND_LINE) as plugin,
    ):
        with pytest.raises(CallError) as refused:
            await plugin.plan(("SCRIPT_RUN", options))

    assert refused.value.status == "INVALID_ARGUMENT"
    told = f"stages[0].with.{path}: this agent opens no secrets for stages (put it into a file"
    assert refused.value.message.startswith(told)


async def test_piped_opens_the_secrets_that_a_script_names(tmp_path: Path) -> None:
    value = 'it\'s "quoted" $(touch injected)\n; touch `touch x` \\ end'
    options = {
        "run": 'printf %s "$PASSWORD" > got; echo {{ .encryptedSecrets.plain }} > plain',
        "env": {"PASSWORD": "{{ .encryptedSecrets.odd }}"},
    }
    async with FakePiped() as piped, scriptrun(piped) as plugin:
        piped.secrets = {"odd": value, "plain": "a-Plain_1/value@x%y+z=:,."}
        await plugin.plan(("SCRIPT_RUN", options))
        answer = await plugin.execute("SCRIPT_RUN", options, stage_id="s1", directory=tmp_path)

    assert answer.status == deployment_pb2.STAGE_SUCCESS
    assert (tmp_path / "got").read_text() == value
    assert (tmp_path / "plain").read_text() == "a-Plain_1/value@x%y+z=:,.\n"
    assert names_in(tmp_path) == ["got", "plain"]
    assert piped.log("s1").lines[1] == f"  {options['run']}"


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


async def _status(executing: Awaitable[object]) -> str:
    try:
        await executing
    except CallError as error:
        return error.status
    return "OK"


async def _stopping(plugin: PluginProcess) -> None:
    """Wait until the plugin has noticed that it is to stop: it refuses every new stage then."""
    async with asyncio.timeout(30):
        while await _status(plugin.execute("SCRIPT_RUN", {}, stage_id="probe", index=9)) == "OK":
            pass
