# SPDX-License-Identifier: Apache-2.0
"""Who may call a plugin's process: its piped, or under a Go agent its own user. Nobody else."""

import json
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from pipecd_runtime.peer import has_ipv6
from pipecd_sdk._glue.management import Invitation, authenticator_of
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, PluginProcess, example_deployment, start_plugin
from pipecd_test_support.stranger import (
    ME,
    NEEDS_ROOT,
    NOBODY,
    UNKNOWN_METHODS,
    Attempt,
    attempts,
    call_as,
    methods_of,
)
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2
from pipecd_wire.plugin.livestateapi import api_pb2 as livestate_pb2
from pipecd_wire.plugin.planpreviewapi import api_pb2 as preview_pb2
from pipecd_wire.rpc import call

# It has every interface there is.
WATCH = [sys.executable, str(Path(__file__).parent.parent / "watch_plugin.py")]
LAB = [sys.executable, str(Path(__file__).parent.parent / "lab_plugin.py")]
SERVED = methods_of(
    *api_pb2.DESCRIPTOR.services_by_name.values(),
    *livestate_pb2.DESCRIPTOR.services_by_name.values(),
    *preview_pb2.DESCRIPTOR.services_by_name.values(),
    plugin_pb2.DESCRIPTOR.services_by_name["PluginConfigService"],
    plugin_pb2.DESCRIPTOR.services_by_name["PluginStageService"],
)
PATHS = [*SERVED, *UNKNOWN_METHODS]
KEY = "pipecd-piped-token"
AS_ROOT = pytest.mark.skipif(ME != 0, reason=NEEDS_ROOT)


def start(
    piped: FakePiped, mode: LaunchMode, program: Sequence[str] = WATCH, name: str = "watch"
) -> AbstractAsyncContextManager[PluginProcess]:
    entry = {"deployTargets": [{"name": "one"}]} if name == "watch" else {}
    return start_plugin(piped, program, name=name, mode=mode, entry=entry)


def names_of(statuses: list[str]) -> set[str]:
    return {each.partition(":")[0] for each in statuses}


def addresses_of(plugin: PluginProcess, mode: LaunchMode) -> list[str]:
    """Where it listens: where it was told its port, on both loopback addresses."""
    hosts = ["127.0.0.1"]
    if mode is LaunchMode.COMMAND_LINE and has_ipv6():
        hosts.append("[::1]")
    return [f"{host}:{plugin.port}" for host in hosts]


@pytest.mark.parametrize("mode", LaunchMode)
async def test_no_rpc_of_an_invited_plugin_answers_a_caller_without_pipeds_token(
    mode: LaunchMode,
) -> None:
    async with FakePiped() as piped, start(piped, mode) as plugin:
        proofs: list[list[tuple[str, str]]] = [
            [],
            [(KEY, "")],
            [(KEY, "guessed")],
            [(KEY, piped.piped_token[:-1])],
            [(KEY, piped.token)],  # what the plugin proves itself with
            [("pipecd-plugin-token", piped.piped_token)],
        ]
        refused = [
            each
            for address in addresses_of(plugin, mode)
            for proof in proofs
            for each in await call_as(ME, address, attempts(PATHS, *proof))
        ]
        address = addresses_of(plugin, mode)[0]
        served = await call_as(ME, address, attempts(SERVED, (KEY, piped.piped_token)))

    assert len(refused) >= len(PATHS) * len(proofs)
    assert names_of(refused) == {"UNAUTHENTICATED"}
    assert len(set(refused)) == 1, "a stranger learns nothing of what is served"
    assert "UNAUTHENTICATED" not in names_of(served)
    assert "UNIMPLEMENTED" not in names_of(served)


@AS_ROOT
@pytest.mark.parametrize("mode", LaunchMode)
async def test_an_invited_plugin_runs_nothing_for_another_user(mode: LaunchMode) -> None:
    async with FakePiped() as piped, start(piped, mode, LAB, "lab") as plugin:
        statuses = [
            each
            for address in addresses_of(plugin, mode)
            for each in await call_as(NOBODY, address, [*attempts(PATHS), execute("LAB_TELL")])
        ]

        assert names_of(statuses) == {"UNAUTHENTICATED"}
        assert piped.logs == {}


@AS_ROOT
async def test_under_a_go_agent_a_plugin_runs_nothing_for_another_user() -> None:
    async with (
        FakePiped(managed=False) as piped,
        start(piped, LaunchMode.COMMAND_LINE, LAB, "lab") as plugin,
    ):
        calls = [*attempts(PATHS), execute("LAB_TELL")]
        refused = [
            each
            for address in addresses_of(plugin, LaunchMode.COMMAND_LINE)
            for each in await call_as(NOBODY, address, calls)
        ]
        assert names_of(refused) == {"UNAUTHENTICATED"}
        assert f"user {NOBODY} of this machine, not {ME}" in refused[0]
        assert piped.logs == {}

        [served] = await call_as(ME, f"127.0.0.1:{plugin.port}", [execute("LAB_TELL")])
        assert served.startswith("OK")
        assert piped.log("stage-0").lines[0] == "hello 3"


def execute(stage: str) -> Attempt:
    """A call that would run a stage: what an attacker wants."""
    given = api_pb2.ExecutePluginInput(
        deployment=example_deployment(),
        stage=deployment_pb2.PipelineStage(
            id="stage-0", name=stage, created_at=1, updated_at=1, index=0
        ),
        stage_config=b"{}",
    )
    path = "/grpc.plugin.deploymentapi.v1alpha1.DeploymentService/ExecuteStage"
    assert path in SERVED
    return Attempt(
        path=path, body=api_pb2.ExecuteStageRequest(input=given).SerializeToString().hex()
    )


async def test_under_a_go_agent_of_the_same_user_every_rpc_is_served() -> None:
    async with FakePiped(managed=False) as piped, start(piped, LaunchMode.COMMAND_LINE) as plugin:
        served = [
            each
            for address in addresses_of(plugin, LaunchMode.COMMAND_LINE)
            for each in await call_as(ME, address, attempts(SERVED))
        ]
        answer = await call(
            plugin.deployments.FetchDefinedStages, api_pb2.FetchDefinedStagesRequest()
        )

    assert not names_of(served) & {"UNAUTHENTICATED", "UNIMPLEMENTED", "INTERNAL"}
    assert "WATCH_SYNC" in answer.stages


async def test_without_pipeds_token_the_user_is_what_counts() -> None:
    """An older piped of ours invites a plugin to management, and does not prove itself."""
    async with FakePiped() as piped:
        piped.piped_token = ""
        async with start(piped, LaunchMode.DESCRIPTOR, LAB, "lab") as plugin:
            answer = await plugin.execute("LAB_TELL", {}, stage_id="s1")

            assert answer.status == deployment_pb2.STAGE_SUCCESS
            if ME == 0:
                address = f"127.0.0.1:{plugin.port}"
                statuses = await call_as(NOBODY, address, attempts(PATHS))
                assert names_of(statuses) == {"UNAUTHENTICATED"}


async def test_a_killed_plugin_is_followed_by_one_with_secrets_of_its_own() -> None:
    async with FakePiped() as piped:
        async with start(piped, LaunchMode.COMMAND_LINE, LAB, "lab") as plugin:
            old = piped.piped_token
            plugin.process.send_signal(signal.SIGKILL)
            assert await plugin.exit_code() == -signal.SIGKILL
        piped.token, piped.piped_token = "new plugin's", "new piped's"
        async with start(piped, LaunchMode.COMMAND_LINE, LAB, "lab") as plugin:
            address = f"127.0.0.1:{plugin.port}"
            statuses = await call_as(ME, address, attempts(SERVED, (KEY, old)))
            answer = await plugin.execute("LAB_TELL", {}, stage_id="s1")

    assert names_of(statuses) == {"UNAUTHENTICATED"}
    assert answer.status == deployment_pb2.STAGE_SUCCESS


# Where the secrets are not


TELLS = f"""#!{sys.executable}
import asyncio, json, os, subprocess, sys
from pipecd_sdk import StageContext, StagePlugin, serve, stage


class Teller(StagePlugin):
    @stage("TELL")
    async def tell(self, ctx: StageContext) -> None:
        shown = "import json, os; print(json.dumps(dict(os.environ)))"
        child = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True)
        told = {{"own": dict(os.environ), "child": json.loads(child.stdout)}}
        ctx.log.info("%s", json.dumps(told))


serve(Teller(), version="1")
"""


@pytest.mark.parametrize("mode", LaunchMode)
async def test_the_secrets_are_in_no_command_line_log_or_child(
    mode: LaunchMode, tmp_path: Path
) -> None:
    program = tmp_path / "teller"
    program.write_text(TELLS)
    program.chmod(0o755)
    async with (
        FakePiped() as piped,
        start_plugin(
            piped, [program], name="teller", mode=mode, flags=["--log-level", "debug"]
        ) as plugin,
    ):
        address = f"127.0.0.1:{plugin.port}"
        await call_as(ME, address, attempts(PATHS, (KEY, "wrong")))
        await plugin.execute("TELL", None, stage_id="s1")
        said = "\n".join([*plugin.output, *piped.log("s1").lines])
        about = Path(f"/proc/{plugin.process.pid}")
        command_line = (about / "cmdline").read_bytes().decode()
        permissions = (about / "environ").stat().st_mode & 0o777

    told = json.loads(piped.log("s1").lines[0])
    assert {"own", "child"} <= told.keys()
    assert not [name for name in told["child"] if name.startswith("PIPECD_PI")]
    for secret in (piped.token, piped.piped_token):
        assert secret
        assert secret not in said
        assert secret not in command_line
    assert permissions == 0o400, "its environment is for its own user only"


def test_an_invitation_does_not_show_its_secrets() -> None:
    invitation = Invitation(token="abc", piped_token="def")  # noqa: S106 - fake ones

    assert "abc" not in f"{invitation} {invitation!r}"
    assert "def" not in f"{invitation} {invitation!r} {authenticator_of(invitation)!r}"
