# SPDX-License-Identifier: Apache-2.0
"""What plugin authors may rely on, pinned."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest

import pipecd_sdk
from pipecd_sdk import testing
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, start_plugin
from pipecd_wire.model import deployment_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2
from pipecd_wire.rpc import call

MODULES = ["pipecd_sdk", "pipecd_sdk.constraints", "pipecd_sdk.testing"] + [
    f"pipecd_sdk.kit.{name}"
    for name in (
        "analysis",
        "diff",
        "git",
        "gojson",
        "hosts",
        "images",
        "manifests",
        "opened_files",
        "patterns",
        "platforms",
        "process",
        "regex",
        "retries",
        "script_records",
        "shell",
        "skipping",
        "templates",
        "text",
        "tools",
        "web",
        "yaml",
    )
]
PUBLIC = [
    "ApplicationConfig",
    "BadValueError",
    "Base64Secret",
    "Clock",
    "CommandKind",
    "Commit",
    "ContainerLog",
    "DeployTarget",
    "Deployment",
    "DeploymentPlugin",
    "Details",
    "DetailsContext",
    "Drift",
    "DISPLAY_KEY",
    "Duration",
    "Exit",
    "Fault",
    "Health",
    "InvalidFileError",
    "LiveSnapshot",
    "LiveContext",
    "LiveState",
    "LiveWatch",
    "Metadata",
    "Operation",
    "Outcome",
    "Percentage",
    "PipedError",
    "PlanContext",
    "PlanPreview",
    "PlannedStage",
    "PluginConfig",
    "Preview",
    "PreviewContext",
    "Replicas",
    "Report",
    "Resource",
    "ResourceDetails",
    "ResourceEvent",
    "ResourceGoneError",
    "Secret",
    "Secrets",
    "Severity",
    "Share",
    "SharedObjects",
    "Skip",
    "Source",
    "Sources",
    "Stage",
    "StageCommand",
    "StageConfig",
    "StageContext",
    "StageDefinitionError",
    "StageFailedError",
    "StageLog",
    "StagePlugin",
    "StageResult",
    "StageStatus",
    "Strategy",
    "SyncState",
    "SyncStatus",
    "SyncStrategy",
    "TargetConfig",
    "TargetError",
    "TargetResult",
    "Tool",
    "ToolError",
    "Tools",
    "Version",
    "WatchContext",
    "RequestedStage",
    "field",
    "replace",
    "run_on_targets",
    "serve",
    "stage",
]

# The whole of a plugin, as the style guide promises it.
WAIT = '''
"""WAIT: hold the pipeline for a fixed time."""

from pipecd_sdk import Duration, StageConfig, StageContext, StagePlugin, serve, stage


class WaitConfig(StageConfig):
    duration: Duration
    """How long to hold the pipeline, e.g. `90s` or `5m`."""


class Wait(StagePlugin):
    @stage("WAIT")
    async def wait(self, ctx: StageContext, config: WaitConfig) -> None:
        # Kept in the stage's metadata, so a restarted piped resumes the same wait.
        started = await ctx.metadata.get_or_set_time("startTime", ctx.clock.now)
        deadline = started + config.duration
        ctx.log.info("Waiting until %s", deadline)
        await ctx.clock.sleep_until(deadline)


if __name__ == "__main__":
    serve(Wait(), version="0.1.0")
'''


def test_the_public_names_are_these() -> None:
    assert sorted(pipecd_sdk.__all__, key=str.swapcase) == sorted(PUBLIC, key=str.swapcase)


def test_what_can_be_called_is_as_it_was() -> None:
    """Somebody's plugin calls it; a change that is meant is seen in the change of this file."""
    program = Path(__file__).with_name("surface.py")

    printed = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=True, timeout=60
    )

    assert printed.stdout.splitlines() == program.with_suffix(".txt").read_text().splitlines(), (
        f"if it is meant: {program.name} > {program.with_suffix('.txt').name}, and tell users"
    )


def test_every_public_name_is_there_and_explained() -> None:
    values = {"DISPLAY_KEY", "Exit", "Skip"}  # their words are beside them
    for name in set(PUBLIC) - values:
        assert getattr(pipecd_sdk, name).__doc__, name


@pytest.mark.parametrize("module", MODULES)
def test_every_class_and_function_of_the_sdk_has_an_example(module: str) -> None:
    named = import_module(module)
    public = [getattr(named, name) for name in named.__all__]
    ours = [each for each in public if getattr(each, "__module__", "").startswith("pipecd_sdk")]

    without = [
        each.__qualname__
        for each in ours
        if isinstance(each, type | FunctionType) and "Example:" not in (each.__doc__ or "")
    ]

    assert without == []


def test_the_test_kit_is_public_too() -> None:
    assert testing.__all__ == [
        "NOON",
        "FakeClock",
        "InMemoryMetadata",
        "InMemoryObjects",
        "InMemoryTools",
        "LogLine",
        "StageHarness",
        "deploy_target",
        "example_deployment",
    ]


async def test_a_plugin_of_22_lines_runs_under_a_go_agent(tmp_path: Path) -> None:
    file = tmp_path / "wait.py"
    file.write_text(WAIT)

    async with (
        FakePiped(managed=False) as piped,
        start_plugin(
            piped, [sys.executable, file], name="wait", mode=LaunchMode.COMMAND_LINE
        ) as plugin,
    ):
        stages = await call(
            plugin.deployments.FetchDefinedStages, api_pb2.FetchDefinedStagesRequest()
        )
        answer = await plugin.execute("WAIT", {"duration": "100ms"}, stage_id="s1")

    assert list(stages.stages) == ["WAIT"]
    assert answer.status == deployment_pb2.STAGE_SUCCESS
    assert piped.log("s1").lines[0].startswith("Waiting until ")


def test_a_plugin_process_imports_only_what_it_needs() -> None:
    """Ten plugins run beside each other: what one imports is paid ten times."""
    program = (
        "import sys, pipecd_plugin_wait.plugin, pipecd_sdk._glue.app\n"
        "heavy = {'yaml', 'click', 'httpx2', 'sqlalchemy', 'starlette', 'uvicorn', 'pytest',"
        " 'cryptography', 'pipecd_sdk.testing', 'pipecd_wire.webservice.service_pb2'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert found.stdout == "[]\n"


def test_a_module_that_only_declares_a_plugin_needs_no_grpc() -> None:
    program = "import sys, pipecd_plugin_wait.plugin\nprint('grpc' in sys.modules)"

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert found.stdout == "False\n"
