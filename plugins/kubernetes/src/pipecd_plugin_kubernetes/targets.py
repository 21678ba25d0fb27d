# SPDX-License-Identifier: Apache-2.0
"""Which deploy targets a deployment, or one stage of it, runs on, and what is different there."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pipecd_plugin_kubernetes.config import Input, KubernetesOptions, TargetInput, TargetReference
from pipecd_plugin_kubernetes.stage_config import TargetChoice
from pipecd_sdk import DeployTarget, StageFailedError

OVERRIDES = (
    "manifests",
    "kubectl_version",
    "kustomize_dir",
    "kustomize_version",
    "kustomize_options",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTarget:
    """A deploy target, with the application's options as they are for it."""

    target: DeployTarget
    options: KubernetesOptions


def resolve_targets(
    options: KubernetesOptions, targets: Sequence[DeployTarget]
) -> list[ChosenTarget]:
    """Returns the deploy targets of an application: all, or those of `input.multiTargets`.

    A target that several entries name gets what each of them says, the last one first.
    """
    entries = options.input.multi_targets
    if not entries:
        return [ChosenTarget(target=target, options=options) for target in targets]
    found = []
    for target in targets:
        mine = [entry for entry in entries if is_meant(target, entry.target)]
        if mine:
            changed = msgspec.structs.replace(options, input=_override(options.input, mine))
            found.append(ChosenTarget(target=target, options=changed))
    return found


def is_meant(target: DeployTarget, reference: TargetReference) -> bool:
    """Returns whether a reference means a deploy target."""
    if reference.name and reference.name != target.name:
        return False
    return all(target.labels.get(key) == value for key, value in reference.labels.items())


def find_unknown(options: KubernetesOptions, targets: Sequence[DeployTarget]) -> list[str]:
    """Returns what `input.multiTargets` names and is no deploy target of the application."""
    return [
        entry.target.name or ", ".join(f"{k}: {v}" for k, v in entry.target.labels.items())
        for entry in options.input.multi_targets
        if not any(is_meant(target, entry.target) for target in targets)
    ]


def choose_targets(chosen: Sequence[ChosenTarget], choice: TargetChoice) -> list[ChosenTarget]:
    """Returns the deploy targets that one stage runs on. Raises StageFailedError."""
    if choice.multi_targets:
        known = [each.target.name for each in chosen]
        if unknown := [name for name in choice.multi_targets if name not in known]:
            raise StageFailedError(
                f"there is no deploy target {', '.join(map(repr, unknown))} of this application",
                hint=f"it has {', '.join(known)}" if known else "it has none",
            )
        return [each for each in chosen if each.target.name in choice.multi_targets]
    if choice.target_percentage:
        return list(chosen[: -(-len(chosen) * choice.target_percentage // 100)])
    return list(chosen)


def _override(given: Input, entries: Sequence[TargetInput]) -> Input:
    changes = {
        key: value for entry in entries for key in OVERRIDES if (value := getattr(entry, key))
    }
    return msgspec.structs.replace(given, **changes, multi_targets=())
