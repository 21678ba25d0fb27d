# SPDX-License-Identifier: Apache-2.0
"""The stages of the plugins that everybody knows, for whoever judges a file without running them.

piped never asks here: it asks the plugins it runs. Lint and simulate do, because a plugin need not
be installed where a file is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPlugin:
    """A plugin by its usual name, and what it offers."""

    name: str
    stages: tuple[str, ...]
    """Those that a pipeline may name."""
    rollback: str = ""
    """What brings its platform back; planned by itself."""
    quick_sync: str = ""

    @property
    def is_platform(self) -> bool:
        """Does it deploy to somewhere, so that it needs a deploy target?"""
        return bool(self.quick_sync)


def _kubernetes(name: str, prefix: str) -> KnownPlugin:
    stages = ("SYNC", "PRIMARY_ROLLOUT", "CANARY_ROLLOUT", "CANARY_CLEAN", "BASELINE_ROLLOUT")
    return KnownPlugin(
        name=name,
        stages=tuple(prefix + each for each in (*stages, "BASELINE_CLEAN", "TRAFFIC_ROUTING")),
        rollback=f"{prefix}ROLLBACK",
        quick_sync=f"{prefix}SYNC",
    )


PLUGINS = (
    _kubernetes("kubernetes", "K8S_"),
    _kubernetes("kubernetes_multicluster", "K8S_MULTI_"),
    KnownPlugin(
        name="terraform",
        stages=("TERRAFORM_PLAN", "TERRAFORM_APPLY", "TERRAFORM_SYNC"),
        rollback="TERRAFORM_ROLLBACK",
        quick_sync="TERRAFORM_APPLY",
    ),
    KnownPlugin(
        name="ecs",
        stages=(
            "ECS_SYNC",
            "ECS_PRIMARY_ROLLOUT",
            "ECS_CANARY_ROLLOUT",
            "ECS_CANARY_CLEAN",
            "ECS_TRAFFIC_ROUTING",
        ),
        rollback="ECS_ROLLBACK",
        quick_sync="ECS_SYNC",
    ),
    KnownPlugin(
        name="lambda",
        stages=("LAMBDA_SYNC", "LAMBDA_CANARY_ROLLOUT", "LAMBDA_PROMOTE"),
        rollback="LAMBDA_ROLLBACK",
        quick_sync="LAMBDA_SYNC",
    ),
    KnownPlugin(
        name="cloudrun",
        stages=("CLOUDRUN_SYNC", "CLOUDRUN_PROMOTE"),
        rollback="CLOUDRUN_ROLLBACK",
        quick_sync="CLOUDRUN_SYNC",
    ),
    KnownPlugin(
        name="files",
        stages=("FILES_SYNC", "FILES_CANARY_ROLLOUT", "FILES_PRIMARY_ROLLOUT"),
        rollback="FILES_ROLLBACK",
        quick_sync="FILES_SYNC",
    ),
    KnownPlugin(name="analysis", stages=("ANALYSIS",)),
    KnownPlugin(name="scriptrun", stages=("SCRIPT_RUN", "CUSTOM_SYNC")),
    KnownPlugin(name="wait", stages=("WAIT",)),
    KnownPlugin(name="waitapproval", stages=("WAIT_APPROVAL",)),
)

BY_NAME = {plugin.name: plugin for plugin in PLUGINS}
STAGES = tuple(stage for plugin in PLUGINS for stage in plugin.stages)

# Planned for the case of a failure; in a pipeline they would run on the way forward.
AUTOMATIC = frozenset(
    {
        "ROLLBACK",
        "SCRIPT_RUN_ROLLBACK",
        "CUSTOM_SYNC_ROLLBACK",
        *(plugin.rollback for plugin in PLUGINS if plugin.rollback),
    }
)


@cache
def plugin_of(stage: str) -> KnownPlugin | None:
    """Find the plugin that offers a stage; None for one that only its own piped knows."""
    return next((plugin for plugin in PLUGINS if stage in plugin.stages), None)


def configured_names(offered: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Say how a piped calls well-known plugins: usual name to configured one, where they differ.

    `offered` has the stages of each of its plugins. A plugin that several could be meant by, or
    that has its usual name, is not in the answer.
    """
    names: dict[str, str] = {}
    for plugin in PLUGINS:
        if plugin.name in offered:
            continue
        meant = [name for name, stages in offered.items() if set(stages) & set(plugin.stages)]
        if len(meant) == 1:
            names[plugin.name] = meant[0]
    return names
