# SPDX-License-Identifier: Apache-2.0
"""Older application files and their migrated form say the same, and keep their comments."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from pipecd_model.config import ApplicationConfig, ConfigFaultsError, load_application
from pipecd_model.errors import ConfigError
from pipecd_model.migrate import migrate_application
from pipecd_model.simulate import Stop, simulate

SHAPES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("shapes.yaml").read_text())
FILE = "apps/shop/app.pipecd.yaml"


def loaded(text: str) -> ApplicationConfig:
    config = load_application(text, file=FILE).config
    return msgspec.structs.replace(config, kind="")


def simulated(text: str) -> list[str]:
    config = loaded(text)
    lines: list[str] = []
    for stop_at in (None, *range(1, max(len(config.pipeline.stages), 1) + 1)):
        for stop in Stop:
            try:
                lines += map(str, simulate(config, stop_at=stop_at, stop=stop))
            except ConfigError as error:
                lines.append(str(error))
    return lines


def migrated(text: str) -> str:
    return migrate_application(text, file=FILE).text


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape["what"]))
def test_the_migrated_file_says_the_same(shape: dict[str, Any]) -> None:
    text = migrated(shape["text"])

    assert load_application(text, file=FILE, strict=True).config.kind == "Application"
    assert loaded(text) == loaded(shape["text"])
    assert simulated(text) == simulated(shape["text"])


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape["what"]))
def test_no_comment_is_lost(shape: dict[str, Any]) -> None:
    def comments(text: str) -> list[str]:
        return sorted(line.partition("# ")[2] for line in text.splitlines() if "# " in line)

    assert comments(migrated(shape["text"])) == comments(shape["text"])


def test_what_is_not_moved_stays_as_it_is_written() -> None:
    text = migrated(
        """\
# the shop
apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp # older
spec:
  name:   "shop"
  # where
  input:
    namespace: shop # here
  pipeline:
    stages:
      - name: WAIT
        with:
          duration: 1s
          timeout: 1m # at most
"""
    )

    assert text == (
        """\
# the shop
apiVersion: pipecd.dev/v1beta1
kind: Application # older
metadata:
  labels:
    kind: KUBERNETES
spec:
  name:   "shop"
  pipeline:
    stages:
      - name: WAIT
        with:
          duration: 1s
        timeout: 1m # at most
  plugins:
    kubernetes:
      # where
      input:
        namespace: shop # here
"""
    )


def test_an_event_that_changes_the_file_itself_finds_its_setting_again() -> None:
    text = migrated(
        """\
apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  input:
    helmChart: {name: x, version: 1.0.0}
  eventWatcher:
    - matcher: {name: chart}
      handler:
        type: GIT_UPDATE
        config:
          replacements:
            - file: app.pipecd.yaml
              yamlField: $.spec.input.helmChart.version
            - file: other.yaml
              yamlField: $.spec.input.helmChart.version
"""
    )

    first, second = loaded(text).event_watcher[0].handler.config.replacements
    assert first.yaml_field == "$.spec.plugins.kubernetes.input.helmChart.version"
    assert second.yaml_field == "$.spec.input.helmChart.version"


def test_hazards_are_told() -> None:
    rewritten = migrate_application(
        """\
apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  trafficRouting: {method: smi}
  pipeline: {stages: [{name: WAIT_APPROVAL}]}
""",
        file=FILE,
    )

    told = [str(hazard) for hazard in rewritten.hazards]
    assert any("smi is no longer supported" in each for each in told)
    assert any("WAIT_APPROVAL without approvers" in each for each in told)


def test_what_is_written_today_needs_no_migration() -> None:
    text = "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec: {plugins: {a: }}\n"

    with pytest.raises(ConfigFaultsError, match="nothing to migrate"):
        migrated(text)


@pytest.mark.parametrize(
    "body", ["spec: [1]\n", "spec:\n  pipeline: {stages: {name: WAIT}}\n", "spec: x\n"]
)
def test_what_is_wrong_is_said_with_its_line(body: str) -> None:
    with pytest.raises(ConfigFaultsError) as caught:
        migrated(f"apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\n{body}")

    assert caught.value.faults[0].line in {3, 4}


def test_what_cannot_be_moved_is_refused() -> None:
    text = """\
apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  input: &settings {namespace: a}
  service: *settings
  labels: *settings
"""

    with pytest.raises(ConfigFaultsError, match="write them out first"):
        migrated(text)
