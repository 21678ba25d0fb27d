# SPDX-License-Identifier: Apache-2.0
"""Makes the manifests of variants that stand beside the primary, and what tells them apart.

A canary or baseline has names of its own for everything that it could otherwise share with the
primary by mistake: its workloads, copies of all ConfigMaps and Secrets, and a Service if asked for.
What is given is never changed.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from pipecd_plugin_kubernetes.config import KubernetesOptions
from pipecd_plugin_kubernetes.manifest import (
    Manifest,
    ManifestError,
    find_map,
    name_type,
    open_map,
)
from pipecd_plugin_kubernetes.metadata import RESOURCE_KEY, refresh_resource_key
from pipecd_plugin_kubernetes.references import find_references, list_maps
from pipecd_plugin_kubernetes.workloads import find_services, find_workloads
from pipecd_sdk import Replicas

CountReplicas: TypeAlias = Callable[[Manifest], int | None]
"""Says how many replicas of a workload run now; None when nobody knows."""

DEFAULT_REPLICAS: Final = 1
_LONGEST_NAME: Final = 253
_ONLY_PRIMARY: Final = (
    "externalIPs",
    "externalName",
    "externalTrafficPolicy",
    "allocateLoadBalancerNodePorts",
    "healthCheckNodePort",
    "loadBalancerClass",
    "loadBalancerIP",
    "loadBalancerSourceRanges",
)
"""Fields of a Service that make it reachable from outside, or that two cannot share."""


def make_variant(
    manifests: Sequence[Manifest],
    options: KubernetesOptions,
    *,
    variant: str,
    suffix: str,
    replicas: Replicas,
    create_service: bool = False,
    count_replicas: CountReplicas | None = None,
) -> list[Manifest]:
    """Returns Services, ConfigMaps, Secrets and workloads of a variant, in this order.

    `variant` is the value of the label that tells variants apart; the label and the config hash are
    written by the caller, into all manifests that it applies. `count_replicas` is asked where git
    does not say how many there are, e.g. because an autoscaler does; the answer is what a
    percentage is taken of. Raises ManifestError.
    """
    if not manifests:
        raise ManifestError(f"there are no manifests to make a {variant} of")
    workloads = find_workloads(manifests, options.workloads)
    if not workloads:
        named = ", ".join(f"{each.kind} {each.name}".strip() for each in options.workloads)
        raise ManifestError(
            f"there is no workload to make a {variant} of",
            hint=f"`workloads` names {named}" if named else "variants are made of Deployments",
        )
    made = []
    if create_service:
        made += make_services(manifests, options, suffix=suffix, variant=variant)
    made += [_copy_named(each, suffix) for each in manifests if each.is_config_map()]
    made += [_copy_named(each, suffix) for each in manifests if each.is_secret()]
    copied = {
        (each.kind, each.key.normalize().namespace, each.name)
        for each in manifests
        if each.is_config_map() or each.is_secret()
    }
    for workload in workloads:
        copy = _make_workload(workload, suffix, variant, copied)
        add_selector_label(copy, key=options.variant_label.key, value=variant)
        count = count_variant(workload, replicas, count_replicas)
        open_map(copy.body, "spec")["replicas"] = count
        made.append(copy)
    return made


def add_selector_labels(
    manifests: Sequence[Manifest], options: KubernetesOptions
) -> list[Manifest]:
    """Returns copies in which the workloads select the pods of the primary. Raises ManifestError.

    The manifests that are no workloads are the same ones.
    """
    label = options.variant_label
    found = {id(each) for each in find_workloads(manifests, options.workloads)}
    made = [each.copy() if id(each) in found else each for each in manifests]
    for workload in find_workloads(made, options.workloads):
        add_selector_label(workload, key=label.key, value=label.primary_value)
    return made


def add_selector_label(workload: Manifest, *, key: str, value: str) -> None:
    """Adds a label to a workload's selector and to its pods, in place. Raises ManifestError."""
    for keys in (("selector", "matchLabels"), ("template", "metadata", "labels")):
        open_map(workload.body, "spec", *keys)[key] = value


def make_services(
    manifests: Sequence[Manifest], options: KubernetesOptions, *, suffix: str, variant: str
) -> list[Manifest]:
    """Returns a Service for one variant alone, of each that the application names.

    Raises ManifestError when there is none.
    """
    found = find_services(manifests, options.service)
    if not found:
        named = f" {options.service.name!r}" if options.service.name else ""
        raise ManifestError(
            f"there is no Service{named} to make one for the {variant} of",
            hint="name it under `service`, or leave out createService",
        )
    return [make_service(each, options, suffix=suffix, variant=variant) for each in found]


def make_service(
    service: Manifest, options: KubernetesOptions, *, suffix: str, variant: str
) -> Manifest:
    """Returns a Service within the cluster that selects the pods of one variant alone."""
    made = _copy_named(service, suffix)
    spec = open_map(made.body, "spec")
    for key in _ONLY_PRIMARY:
        spec.pop(key, None)
    if spec.get("clusterIP") != "None":
        # An address is given to one Service; only "no address" can be said of both.
        spec.pop("clusterIP", None)
        spec.pop("clusterIPs", None)
    for port in list_maps(spec, "ports"):
        port.pop("nodePort", None)
    spec["type"] = "ClusterIP"
    open_map(spec, "selector")[options.variant_label.key] = variant
    return made


def _copy_named(manifest: Manifest, suffix: str) -> Manifest:
    """Returns a copy under the variant's name."""
    made = manifest.copy()
    made.metadata["name"] = _add_suffix(manifest.name, suffix)
    if RESOURCE_KEY in made.annotations:
        refresh_resource_key(made)
    return made


def _add_suffix(name: str, suffix: str) -> str:
    made = f"{name}-{suffix}"
    if len(made) > _LONGEST_NAME:
        raise ManifestError(
            f"the name {made[:100]!r} is longer than {_LONGEST_NAME} characters",
            hint="give the stage a shorter suffix",
        )
    return made


def _make_workload(
    workload: Manifest, suffix: str, variant: str, copied: set[tuple[str, str, str]]
) -> Manifest:
    if not workload.is_deployment():
        raise ManifestError(
            f"a {variant} of {workload.describe()} cannot be made: only Deployments can have"
            " variants",
            hint="name Deployments under `workloads`",
        )
    made = _copy_named(workload, suffix)
    namespace = workload.key.normalize().namespace
    for reference in find_references(made):
        if (reference.kind, namespace, reference.name) in copied:
            reference.rename(_add_suffix(reference.name, suffix))
    return made


def count_variant(
    workload: Manifest, replicas: Replicas, count_replicas: CountReplicas | None = None
) -> int:
    """Returns how many replicas a variant of a workload has. Raises ManifestError."""
    given: Any = find_map(workload.body, "spec").get("replicas")
    if given is None and count_replicas is not None:
        given = count_replicas(workload)
    if given is None:
        given = DEFAULT_REPLICAS
    if isinstance(given, bool) or not isinstance(given, int):
        raise ManifestError(
            f"{workload.describe()}: spec.replicas must be a number, it is {name_type(given)}"
        )
    return max(replicas.resolve(given, default=DEFAULT_REPLICAS), 0)
