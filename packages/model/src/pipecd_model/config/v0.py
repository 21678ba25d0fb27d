# SPDX-License-Identifier: Apache-2.0
"""Converts application files of the older kinds to today's shape before they are decoded.

Each older kind named a platform; today a platform is a plugin, so its settings move to that
plugin's section. What meant something else there, or has no counterpart, is reported.
`pipectl migrate` does the same to the text of a file, and checks itself against this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipecd_model.config import rules
from pipecd_model.config.decoder import Finding, Findings
from pipecd_model.config.path import Path
from pipecd_model.config.schema import find_key, find_list, find_mapping, find_value

_PLATFORM_KEYS = ("input", "quickSync")
_KUBERNETES_KEYS = (
    *_PLATFORM_KEYS,
    "service",
    "workloads",
    "trafficRouting",
    "variantLabel",
    "resourceRoutes",
)
PLUGIN = {
    "KubernetesApp": "kubernetes",
    "TerraformApp": "terraform",
    "CloudRunApp": "cloudrun",
    "LambdaApp": "lambda",
    "ECSApp": "ecs",
}
"""The plugin that an older kind stands for."""
KINDS = tuple(PLUGIN)

STAGE_KEYS = ("timeout", "skipOn")
"""On the stage today, among its options before."""
_PERCENT = {"ECS_CANARY_ROLLOUT": ("scale",), "ECS_TRAFFIC_ROUTING": ("primary", "canary")}
_ACCESS_TYPES = ("ELB", "SERVICE_DISCOVERY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """The body of an older file as it is written today, and what its author should know."""

    spec: dict[str, Any]
    findings: Findings = field(default_factory=Findings)


def labels(kind: str) -> dict[str, str]:
    """Say the kind the way applications say it today, as a label."""
    return {"kind": PLUGIN[kind].upper()} if kind in PLUGIN else {}


def section_keys(kind: str) -> tuple[str, ...]:
    """Name the keys that belong to the plugin today."""
    return _KUBERNETES_KEYS if kind == "KubernetesApp" else _PLATFORM_KEYS


def to_application(
    kind: str, spec: dict[str, Any], *, names: Mapping[str, str] | None = None
) -> Mapped:
    """Rewrite the body of an older kind; what is wrong in it is left for the decoder to say.

    `names` has the plugins that the piped calls otherwise: usual name to configured one.
    """
    names = names or {}
    plugin = names.get(PLUGIN[kind], PLUGIN[kind])
    analysis = names.get("analysis", "analysis")
    keys = {key.lower() for key in section_keys(kind)}
    section = {key: value for key, value in spec.items() if key.lower() in keys}
    rest = {key: value for key, value in spec.items() if key.lower() not in keys}
    findings = Findings()
    _hazards(kind, spec, findings)
    _change(rest, "planner", lambda planner: _planner(kind, planner, section))
    section = _section(kind, section)
    _change(rest, "plugins", lambda plugins: _plugins(plugins, plugin, section))
    namespace = k8s_namespace(kind, spec)
    if namespace is not None:
        _change(rest, "plugins", lambda plugins: _add_namespace(plugins, analysis, namespace))
    if find_key(rest, "pipeline") is not None:
        _change(rest, "pipeline", _pipeline)
    return Mapped(spec=rest, findings=findings)


def _change(
    raw: dict[str, Any], key: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """Replace a mapping that may be missing; anything else there is wrong and stays."""
    key = find_key(raw, key) or key
    value = raw.get(key)
    if value is None or isinstance(value, dict):
        raw[key] = change(value or {})


def _plugins(plugins: dict[str, Any], name: str, section: dict[str, Any]) -> dict[str, Any]:
    own = plugins.get(name)
    return {**plugins, name: {**section, **own} if isinstance(own, dict) else section}


def auto_rollback(kind: str, spec: dict[str, Any]) -> Any:
    """Find the rollback switch where the older kinds had it; Terraform's was off."""
    platform_input = find_mapping(spec, "input")
    switch = find_value(platform_input, "autoRollback")
    return False if switch is None and kind == "TerraformApp" else switch


def _planner(kind: str, planner: dict[str, Any], section: dict[str, Any]) -> dict[str, Any]:
    if find_key(planner, "autoRollback") is not None:
        return planner
    switch = auto_rollback(kind, section)
    return planner if switch is None else {**planner, "autoRollback": switch}


def is_standalone_task(kind: str, platform_input: dict[str, Any]) -> bool:
    """Returns whether it was a task without a service only because that was the default."""
    return (
        kind == "ECSApp"
        and find_key(platform_input, "runStandaloneTask") is None
        and not find_value(platform_input, "serviceDefinitionFile")
    )


def _section(kind: str, section: dict[str, Any]) -> dict[str, Any]:
    """Write the plugin's section: without the switch that moved, and with defaults that changed."""
    key = find_key(section, "input") or "input"
    value = section.get(key)
    if value is not None and not isinstance(value, dict):
        return section
    platform_input = {k: v for k, v in (value or {}).items() if k.lower() != "autorollback"}
    if is_standalone_task(kind, platform_input):
        platform_input["runStandaloneTask"] = True
    rest = {k: v for k, v in section.items() if k != key}
    if kind == "TerraformApp":
        return {**platform_input, **rest}  # its plugin has these directly in its section
    return {key: platform_input, **rest} if platform_input or key in section else rest


def k8s_namespace(kind: str, spec: dict[str, Any]) -> str | None:
    """Give the namespace that queries of an analysis could name; None where there is none."""
    if kind != "KubernetesApp" or not any(name == "ANALYSIS" for _, name, _ in _stages(spec)):
        return None
    platform_input = find_mapping(spec, "input")
    namespace = find_value(platform_input, "namespace")
    return namespace if isinstance(namespace, str) and namespace else "default"


def _add_namespace(plugins: dict[str, Any], name: str, namespace: str) -> dict[str, Any]:
    section = plugins.get(name) or {}
    if not isinstance(section, dict):
        return plugins
    arguments = section.get("appCustomArgs") or {}
    if not isinstance(arguments, dict):
        return plugins
    arguments = {"k8sNamespace": namespace, **arguments}
    return {**plugins, name: {**section, "appCustomArgs": arguments}}


def _pipeline(pipeline: dict[str, Any]) -> dict[str, Any]:
    key = find_key(pipeline, "stages") or ""
    stages = pipeline.get(key)
    if not isinstance(stages, list):
        return pipeline
    return {**pipeline, key: [_stage(each) for each in stages]}


def _stage(stage: Any) -> Any:
    if not isinstance(stage, dict):
        return stage
    with_key = find_key(stage, "with") or ""
    options = stage.get(with_key)
    if not isinstance(options, dict):
        return stage
    moved = {key: written for key in STAGE_KEYS if (written := find_key(options, key))}
    lifted = {
        key: options[written] for key, written in moved.items() if find_key(stage, key) is None
    }
    kept = {key: value for key, value in options.items() if key not in moved.values()}
    name = find_value(stage, "name")
    for key in _PERCENT.get(name, ()) if isinstance(name, str) else ():
        if (written := find_key(kept, key)) and (number := plain_number(kept[written])) is not None:
            kept[written] = number
    return {**stage, with_key: kept, **lifted}


def percent_options(name: str) -> tuple[str, ...]:
    """Name the options of a stage that were percentages and are numbers today."""
    return _PERCENT.get(name, ())


def plain_number(value: Any) -> int | None:
    """Read `30%` as 30; None for what is no percentage in this form."""
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdecimal():
        return int(value[:-1])
    return None


def _hazards(kind: str, spec: dict[str, Any], findings: Findings) -> None:
    """Reports what has no counterpart today, or what plugins other than ours read differently."""

    def warn(path: Path, message: str, hint: str = "") -> None:
        findings.warnings.append(Finding(path=("spec", *path), message=message, hint=hint))

    traffic = find_mapping(spec, "trafficRouting")
    if find_value(traffic, "method") == "smi":
        warn(("trafficRouting", "method"), "smi is no longer supported", "use istio or podselector")
    if find_key(spec, "resourceRoutes") is not None and kind == "KubernetesApp":
        warn(("resourceRoutes",), "no plugin reads it", "use the plugin kubernetes_multicluster")
    platform_input = find_mapping(spec, "input")
    chart = find_mapping(platform_input, "helmChart")
    if find_key(chart, "gitRemote") is not None and kind == "KubernetesApp":
        warn(
            ("input", "helmChart", "gitRemote"),
            "charts from other git repositories are not supported",
            "copy the chart",
        )
    _check_access_type(kind, platform_input, findings)
    plugins = find_mapping(spec, "plugins")
    for name in plugins:
        if name in PLUGIN.values() and name != PLUGIN[kind]:
            findings.faults.append(
                Finding(
                    path=("spec", "plugins", name),
                    message=f"only one platform plugin is allowed in a {kind}",
                    hint="write kind: Application to use several",
                    on_key=True,
                )
            )
    for path, name, options in _stages(spec):
        if name in {"CUSTOM_SYNC", "TERRAFORM_SYNC"}:
            other = "SCRIPT_RUN" if name == "CUSTOM_SYNC" else "TERRAFORM_APPLY"
            warn((*path, "name"), f"{name} is an older stage", f"use {other}")
        if name == "ANALYSIS" and ".App.Env" in str(options):
            warn((*path, "with"), ".App.Env in a query is gone", "write the value itself")
    for index, matcher in enumerate(_chain(spec)):
        if isinstance(matcher, dict) and {key.lower() for key in matcher} == {"labels"}:
            message = "labels alone choose every application of the project"
            warn(("postSync", "chain", "applications", index), message, "add name or kind")


def _check_access_type(kind: str, platform_input: dict[str, Any], findings: Findings) -> None:
    key = find_key(platform_input, "accessType") if kind == "ECSApp" else None
    if key is None or platform_input[key] in (None, "", *_ACCESS_TYPES):
        return
    value = str(platform_input[key])
    near = rules.nearest(value.upper(), _ACCESS_TYPES)
    choices = f"one of {', '.join(_ACCESS_TYPES)}"
    findings.faults.append(
        Finding(
            path=("spec", "input", key),
            message=f"unknown value {value!r}",
            hint=f"{near} {choices}".strip(),
        )
    )


def _stages(spec: dict[str, Any]) -> Iterator[tuple[Path, str, Any]]:
    for index, stage in enumerate(find_list(find_mapping(spec, "pipeline"), "stages")):
        if isinstance(stage, dict):
            name = find_value(stage, "name")
            options = find_value(stage, "with")
            yield ("pipeline", "stages", index), str(name), options


def _chain(spec: dict[str, Any]) -> list[Any]:
    return find_list(find_mapping(find_mapping(spec, "postSync"), "chain"), "applications")
