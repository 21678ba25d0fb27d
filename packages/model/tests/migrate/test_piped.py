# SPDX-License-Identifier: Apache-2.0
"""Older piped files: providers become plugins with deploy targets."""

import pytest
import yaml

from pipecd_model.config import ConfigFaultsError, load_piped
from pipecd_model.migrate import migrate_piped

HEAD = """\
apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  # who it is
  projectID: p
  pipedID: i
  pipedKeyFile: /etc/key
  apiAddress: localhost:8080
"""
OLDER = (
    HEAD
    + """\
  # the clusters
  platformProviders:
    # first
    - name: dev
      type: KUBERNETES
      labels:
        env: dev
      config:
        kubeConfigPath: /etc/kube # the file
    - name: infra
      type: TERRAFORM
      config: {vars: ["project=x"]}
  cloudProviders:
    - {name: prod, type: KUBERNETES}
  chartRepositories:
    - name: stable # charts
      address: https://charts.example.com
  analysisProviders:
    - name: prom
      type: PROMETHEUS
      config: {address: "http://prom:9090"}
  syncInterval: 2m
"""
)


def test_every_provider_becomes_a_deploy_target() -> None:
    config = load_piped(migrate_piped(OLDER, file="f").text, file="f", strict=True).config

    plugins = {plugin.name: plugin for plugin in config.plugins}
    assert list(plugins) == [
        "kubernetes",
        "terraform",
        "analysis",
        "wait",
        "waitapproval",
        "scriptrun",
    ]
    dev, prod = plugins["kubernetes"].deploy_targets
    assert (dev.name, dev.labels, dev.config) == (
        "dev",
        {"env": "dev"},
        {"kubeConfigPath": "/etc/kube"},
    )
    assert prod.name == "prod"
    assert plugins["terraform"].deploy_targets[0].config == {"vars": ["project=x"]}
    assert plugins["kubernetes"].config == {
        "chartRepositories": [{"name": "stable", "address": "https://charts.example.com"}]
    }
    assert plugins["analysis"].config == {
        "analysisProviders": [
            {"name": "prom", "type": "PROMETHEUS", "config": {"address": "http://prom:9090"}}
        ]
    }
    assert str(config.sync_interval) == "2m0s"


def test_comments_inside_of_what_moves_stay() -> None:
    text = migrate_piped(OLDER, file="f").text

    for comment in ("# who it is", "# first", "# the file", "# charts"):
        assert comment in text


def test_a_platform_that_there_is_not_is_told() -> None:
    with pytest.raises(ConfigFaultsError) as caught:
        migrate_piped(HEAD + "  platformProviders: [{name: a, type: K8S}]\n", file="f")

    (fault,) = caught.value.faults
    assert (fault.line, fault.path) == (9, "spec.platformProviders[0].type")
    assert "did you mean 'KUBERNETES'?" in fault.hint


def test_what_is_written_today_needs_no_migration() -> None:
    with pytest.raises(ConfigFaultsError, match="nothing to migrate"):
        migrate_piped(HEAD, file="f")


def test_charts_from_git_are_told() -> None:
    rewritten = migrate_piped(
        HEAD + "  chartRepositories: [{type: GIT, gitRemote: git@example.com:a.git}]\n", file="f"
    )

    assert any("charts from git" in str(hazard) for hazard in rewritten.hazards)


IDENTITY = {"projectID": "p", "pipedID": "i", "apiAddress": "h:1", "pipedKeyFile": "/k"}


@pytest.mark.parametrize("flow", [True, False, None])
@pytest.mark.parametrize("indent", [2, 4])
@pytest.mark.parametrize("first", [True, False])
def test_the_layout_does_not_matter(flow: bool | None, indent: int, first: bool) -> None:
    providers = {
        "platformProviders": [
            {"type": "ECS", "name": "aws", "config": {"region": "us-east-1"}},
            {"name": "dev", "type": "KUBERNETES", "labels": {"a": "b"}},
        ],
        "chartRegistries": [{"type": "OCI", "address": "example.com"}],
    }
    spec = providers | IDENTITY if first else IDENTITY | providers
    text = yaml.safe_dump(
        {"apiVersion": "pipecd.dev/v1beta1", "kind": "Piped", "spec": spec},
        default_flow_style=flow,
        indent=indent,
        sort_keys=False,
    )

    config = load_piped(migrate_piped(text, file="f").text, file="f", strict=True).config

    ecs, kubernetes, *others = config.plugins
    assert (ecs.name, ecs.deploy_targets[0].name) == ("ecs", "aws")
    assert ecs.deploy_targets[0].config == {"region": "us-east-1"}
    assert kubernetes.deploy_targets[0].labels == {"a": "b"}
    assert kubernetes.config == {"chartRegistries": providers["chartRegistries"]}
    assert [each.name for each in others] == ["wait", "waitapproval", "scriptrun"]
