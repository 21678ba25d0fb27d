# SPDX-License-Identifier: Apache-2.0
"""What is wrong before the first stage is told at once, where it stands."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest

from pipecd_model.config import ConfigFaultsError, load_application
from pipecd_model.errors import ConfigError
from pipecd_piped.plan.checks import check
from pipecd_piped.secrets import OpenedSecrets
from pipecd_test_support.piped_parts import FakePlugin
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource

TEXT = """apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  encryption:
    encryptedSecrets:
      login: closed
      spare: closed
  pipeline:
    stages:
      - name: STEP
        with:
          command: echo {{ .encryptedSecrets.login }}
      - name: OTHER
        with:
          count: 1
  plugins:
    lab:
      into: /somewhere
"""


async def faults_of(
    text: str,
    opened: OpenedSecrets,
    *plugins: FakePlugin,
    targets: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[str]:
    config = load_application(text, file="app.pipecd.yaml").config
    source = DeploymentSource(
        application_config=text.encode(), application_config_filename="app.pipecd.yaml"
    )
    by_index: dict[int, Any] = {}
    for stage in config.pipeline.stages:
        for plugin in plugins:
            if stage.name in plugin.stages:
                by_index[stage.index] = plugin
    try:
        await check(config, source, opened, by_index, plugins, targets)
    except ConfigFaultsError as error:
        return [str(fault) for fault in error.faults]
    return []


async def test_what_is_right_passes() -> None:
    opened = OpenedSecrets(values={"login": "x", "spare": "y"})

    assert await faults_of(TEXT, opened, FakePlugin("lab", "STEP", "OTHER")) == []


async def test_a_secret_that_a_stage_names_must_open() -> None:
    why = ConfigError("it was closed for another key", hint="close it again")
    opened = OpenedSecrets(problems={"login": why, "spare": why})

    (told,) = await faults_of(TEXT, opened)  # nobody needs the other one

    assert told == (
        "app.pipecd.yaml:6:14: spec.encryption.encryptedSecrets.login: "
        "the secret 'login' cannot be opened: it was closed for another key (close it again)"
    )


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{{ .encryptedSecrets.logn }}", "there is no secret 'logn' (did you mean 'login'?)"),
        ("{{ .encryptedSecrets.login | upper }}", "cannot do more with a secret than name it"),
    ],
)
async def test_a_name_that_is_none_is_told_at_its_stage(written: str, told: str) -> None:
    text = TEXT.replace("{{ .encryptedSecrets.login }}", written)

    (fault,) = await faults_of(text, OpenedSecrets(values={"login": "x", "spare": "y"}))

    assert fault.startswith("app.pipecd.yaml:12:20: spec.pipeline.stages[0].with.command: ")
    assert told in fault


async def test_plugins_are_asked_about_what_is_theirs() -> None:
    asked: dict[str, plugin_pb2.CheckConfigRequest] = {}
    lab, other = FakePlugin("lab", "STEP"), FakePlugin("other", "OTHER")

    def complain(request: plugin_pb2.CheckConfigRequest) -> plugin_pb2.CheckConfigResponse:
        asked["lab"] = request
        return plugin_pb2.CheckConfigResponse(
            faults=[
                plugin_pb2.Fault(path="stages[0].with.command", message="too long", hint="cut it"),
                plugin_pb2.Fault(path="into", message="not there"),
            ]
        )

    def agree(request: plugin_pb2.CheckConfigRequest) -> plugin_pb2.CheckConfigResponse:
        asked["other"] = request
        return plugin_pb2.CheckConfigResponse()

    lab.checks, other.checks = complain, agree

    told = await faults_of(TEXT, OpenedSecrets(values={"login": "x", "spare": "y"}), lab, other)

    assert told == [
        "app.pipecd.yaml:12:20: spec.pipeline.stages[0].with.command: too long (cut it)",
        "app.pipecd.yaml:18:13: spec.plugins.lab.into: not there",
    ]
    assert asked["lab"].application_config == b'{"into": "/somewhere"}'
    assert [(each.name, each.index) for each in asked["lab"].stages] == [("STEP", 0)]
    assert asked["other"].application_config == b""
    assert [(each.name, each.config) for each in asked["other"].stages] == [
        ("OTHER", b'{"count": 1}')
    ]


async def test_a_plugin_is_told_the_deploy_targets_and_can_refuse_them() -> None:
    asked: list[list[str]] = []
    lab = FakePlugin("lab", "STEP", "OTHER")

    def refuse(request: plugin_pb2.CheckConfigRequest) -> plugin_pb2.CheckConfigResponse:
        asked.append(list(request.deploy_targets))
        fault = plugin_pb2.Fault(path="deployTargets", message="one is enough")
        return plugin_pb2.CheckConfigResponse(faults=[fault])

    lab.checks = refuse
    text = TEXT + "  deployTargets:\n    lab: [a, b]\n"
    targets = {"lab": ["a", "b"], "other": ["c"]}

    told = await faults_of(
        text, OpenedSecrets(values={"login": "x", "spare": "y"}), lab, targets=targets
    )

    assert told == ["app.pipecd.yaml:20:10: spec.deployTargets.lab: one is enough"]
    assert asked == [["a", "b"]]
