# SPDX-License-Identifier: Apache-2.0
"""Every platform in its older and in today's form: loaded, simulated and migrated to the same."""

from pathlib import Path
from textwrap import indent
from typing import Any

import msgspec
import pytest
import yaml

from pipecd_model.config import ApplicationConfig, load_application
from pipecd_model.errors import ConfigError
from pipecd_model.known_plugins import load_known_plugins
from pipecd_model.lint import lint
from pipecd_model.migrate import migrate_application
from pipecd_model.simulate import SimulatedStep, Stop, simulate

SHAPES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("minimal.yaml").read_text())
FILE = "app.pipecd.yaml"


def document(kind: str, spec: str) -> str:
    return f"apiVersion: pipecd.dev/v1beta1\nkind: {kind}\nspec:\n{indent(spec, '  ')}"


def loaded(text: str) -> ApplicationConfig:
    """What a file says, but for the label that only an older kind adds by itself."""
    config = load_application(text, file=FILE).config
    labels = {key: value for key, value in config.labels.items() if key != "kind"}
    return msgspec.structs.replace(config, kind="", labels=labels)


def simulated(config: ApplicationConfig) -> list[SimulatedStep]:
    steps: list[SimulatedStep] = []
    for stop_at in (None, *range(1, len(config.pipeline.stages) + 1)):
        for stop in Stop:
            steps += simulate(config, stop_at=stop_at, stop=stop)
    return steps


@pytest.fixture(params=SHAPES, ids=lambda shape: str(shape["what"]))
def shape(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


def test_both_forms_mean_the_same(shape: dict[str, Any]) -> None:
    older = document(shape["kind"], shape["older"])
    today = document("Application", shape["today"])

    assert loaded(older) == loaded(today)
    assert loaded(migrate_application(older, file=FILE).text) == loaded(today)
    assert simulated(loaded(older)) == simulated(loaded(today))


def test_neither_form_has_a_fault(shape: dict[str, Any]) -> None:
    assert lint(document(shape["kind"], shape["older"]), file=FILE).faults == ()
    assert lint(document("Application", shape["today"]), file=FILE).faults == ()


def test_every_stage_that_fails_is_rolled_back_by_its_platform(shape: dict[str, Any]) -> None:
    config = loaded(document("Application", shape["today"]))
    rollback = load_known_plugins()[shape["plugin"]].platform_rollback

    for number in range(1, len(config.pipeline.stages) + 1):
        steps = list(simulate(config, stop_at=number, stop=Stop.FAILS))
        assert [each.name for each in steps if each.is_rollback and each.runs][:1] == [rollback]


def test_a_stage_that_there_is_not_cannot_fail(shape: dict[str, Any]) -> None:
    config = loaded(document("Application", shape["today"]))
    with pytest.raises(ConfigError):
        list(simulate(config, stop_at=len(config.pipeline.stages) + 1, stop=Stop.FAILS))


PIPED = """
projectID: p
pipedID: i
pipedKeyData: a2V5
apiAddress: host:443
plugins:
  - name: kubernetes
    port: 7001
    url: file:///opt/plugins/kubernetes
    config: {chartRepositories: [{name: stable, address: https://charts.example.com}]}
    deployTargets:
      - name: dev
        labels: {env: dev}
        config: {kubeConfigPath: /etc/kube/dev, kubectlVersion: 1.32.2}
  - name: terraform
    port: 7002
    url: file:///opt/plugins/terraform
    deployTargets: [{name: tf, config: {vars: [project=x]}}]
  - name: ecs
    port: 7003
    url: file:///opt/plugins/ecs
    deployTargets: [{name: aws, config: {region: us-east-1}}]
  - name: analysis
    port: 7004
    url: file:///opt/plugins/analysis
    config: {analysisProviders: [{name: prom, type: PROMETHEUS, config: {address: http://prom}}]}
  - {name: wait, port: 7005, url: file:///opt/plugins/wait}
  - {name: waitapproval, port: 7006, url: file:///opt/plugins/waitapproval}
  - {name: scriptrun, port: 7007, url: file:///opt/plugins/scriptrun}
"""


def test_a_piped_with_all_of_them_loads() -> None:
    assert lint(document("Piped", PIPED), file="piped.yaml").faults == ()
