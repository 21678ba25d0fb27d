# SPDX-License-Identifier: Apache-2.0
"""Which deploy targets a stage runs on, and what is different there."""

from typing import Any

import pytest
from pipecd_plugin_kubernetes.config import KubernetesOptions, KubernetesTarget
from pipecd_plugin_kubernetes.stage_config import SyncConfig
from pipecd_plugin_kubernetes.targets import (
    choose_targets,
    find_unknown,
    resolve_targets,
)

from pipecd_sdk import DeployTarget, StageFailedError
from pipecd_sdk.config import read_value

TARGETS = [
    DeployTarget(name=name, labels={"region": region}, config=KubernetesTarget())
    for name, region in (("a", "eu"), ("b", "eu"), ("c", "us"), ("d", "us"), ("e", "us"))
]


def options(multi_targets: list[Any], **given: Any) -> KubernetesOptions:
    raw = {"input": {"manifests": ["all.yaml"], "multiTargets": multi_targets, **given}}
    return read_value(KubernetesOptions, raw, path=())[0]


def choice(**given: Any) -> SyncConfig:
    return read_value(SyncConfig, given, path=())[0]


def names(given: KubernetesOptions) -> list[str]:
    return [each.target.name for each in resolve_targets(given, TARGETS)]


def test_an_application_has_all_deploy_targets_or_those_that_it_names() -> None:
    assert names(options([])) == ["a", "b", "c", "d", "e"]
    assert names(options([{"target": {"name": "d"}}, {"target": {"name": "b"}}])) == ["b", "d"]


def test_deploy_targets_are_named_by_labels_too() -> None:
    """Upstream reads the labels and does nothing with them."""
    assert names(options([{"target": {"labels": {"region": "eu"}}}])) == ["a", "b"]
    assert names(options([{"target": {"name": "a", "labels": {"region": "us"}}}])) == []


def test_a_target_gets_its_own_input_and_the_rest_of_all() -> None:
    entries = [
        {"target": {"labels": {"region": "us"}}, "kustomizeDir": "us"},
        {"target": {"name": "e"}, "manifests": ["e.yaml"]},
        {"target": {"name": "a"}},
    ]

    a, c, d, e = resolve_targets(options(entries, namespace="shop"), TARGETS)

    assert a.options.input.manifests == ("all.yaml",)
    assert (c.options.input.kustomize_dir, d.options.input.kustomize_dir) == ("us", "us")
    assert (e.options.input.kustomize_dir, e.options.input.manifests) == ("us", ("e.yaml",))
    assert {each.options.input.namespace for each in (a, c, d, e)} == {"shop"}


def test_names_that_no_deploy_target_has_are_found() -> None:
    given = options(
        [
            {"target": {"name": "a"}},
            {"target": {"name": "gone"}},
            {"target": {"labels": {"region": "asia"}}},
        ]
    )

    assert find_unknown(given, TARGETS) == ["gone", "region: asia"]


def test_a_stage_runs_on_those_that_it_names_and_says_which_are_none() -> None:
    """Upstream does nothing then, and calls it success."""
    all_of_them = resolve_targets(options([]), TARGETS)

    chosen = choose_targets(all_of_them, choice(multiTargets=["c", "a"]))

    assert [each.target.name for each in chosen] == ["a", "c"]
    with pytest.raises(StageFailedError, match="no deploy target 'typo'") as caught:
        choose_targets(all_of_them, choice(multiTargets=["a", "typo"]))
    assert caught.value.hint == "it has a, b, c, d, e"


@pytest.mark.parametrize(
    ("percentage", "count"), [("1%", 1), ("20%", 1), ("21%", 2), ("60%", 3), ("100%", 5)]
)
def test_a_wave_is_a_part_of_the_targets_and_at_least_one(percentage: str, count: int) -> None:
    all_of_them = resolve_targets(options([]), TARGETS)

    chosen = choose_targets(all_of_them, choice(targetPercentage=percentage))

    assert [each.target.name for each in chosen] == ["a", "b", "c", "d", "e"][:count]
