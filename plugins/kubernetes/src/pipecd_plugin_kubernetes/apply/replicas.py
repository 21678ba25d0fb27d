# SPDX-License-Identifier: Apache-2.0
"""Who decides about `spec.replicas` of a workload: git, or somebody who scales it. Pure.

Whoever writes them through the scale subresource (an autoscaler, a person with `kubectl scale`),
or has a HorizontalPodAutoscaler that targets the workload, keeps them: they are left out of what is
applied and compared, unless a stage sets them itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipecd_plugin_kubernetes.apply.takeover import find_owners
from pipecd_plugin_kubernetes.manifest import Manifest, find_map
from pipecd_sdk.kit.text import make_printable_line

REPLICAS_PATH: Final = ("spec", "replicas")
AUTOSCALER: Final = ("autoscaling", "HorizontalPodAutoscaler")


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """A workload that an autoscaler scales; the version of its API makes no difference."""

    group: str
    kind: str
    namespace: str
    name: str


def has_replicas(manifest: Manifest) -> bool:
    """Returns whether a manifest says how many pods there should be."""
    return "replicas" in find_map(manifest.body, "spec")


def find_scale_targets(
    autoscalers: Iterable[Mapping[str, Any]], *, namespace: str
) -> dict[ScaleTarget, str]:
    """Returns what autoscalers target, and the name of one for each.

    `namespace` is where those are that name none.
    """
    targets: dict[ScaleTarget, str] = {}
    for body in autoscalers:
        reference = find_map(body, "spec", "scaleTargetRef")
        metadata = find_map(body, "metadata")
        group, slash, _ = str(reference.get("apiVersion", "")).rpartition("/")
        target = ScaleTarget(
            group if slash else "",
            str(reference.get("kind", "")),
            str(metadata.get("namespace") or namespace),
            str(reference.get("name", "")),
        )
        targets.setdefault(target, str(metadata.get("name", "")))
    return targets


def find_scaler(
    live: Mapping[str, Any], target: ScaleTarget, autoscaled: Mapping[ScaleTarget, str]
) -> str:
    """Returns who decides about the replicas of a live workload, for people; empty means git."""
    for entry in find_owners(live, *REPLICAS_PATH):
        if entry.get("subresource") == "scale":
            manager = make_printable_line(str(entry.get("manager", "")))[:100]
            return f"{manager!r}, which writes them through the scale subresource"
    name = autoscaled.get(target)
    if name is None:
        return ""
    return f"the HorizontalPodAutoscaler {make_printable_line(name)[:253]!r}"


def read_replicas(body: Mapping[str, Any]) -> int | None:
    """Returns how many pods an object asks for; None when it does not say, or not a number."""
    found = find_map(body, "spec").get("replicas")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def remove_replicas(body: dict[str, Any]) -> None:
    """Takes the number of pods out of a body that the caller owns."""
    spec = body.get("spec")
    if isinstance(spec, dict):
        body["spec"] = {key: spec[key] for key in spec if key != "replicas"}
