# SPDX-License-Identifier: Apache-2.0
"""Application files of the older kinds, brought into today's shape before they are decoded.

Each older kind named a platform; today a platform is a plugin, so its settings move to that
plugin's section. Everything else is spelled the same.
"""

from __future__ import annotations

from typing import Any

_PLATFORM_KEYS = ("input", "quickSync")
_KUBERNETES_KEYS = (
    *_PLATFORM_KEYS,
    "service",
    "workloads",
    "trafficRouting",
    "variantLabel",
    "resourceRoutes",
)
_PLUGIN = {
    "KubernetesApp": "kubernetes",
    "TerraformApp": "terraform",
    "CloudRunApp": "cloudrun",
    "LambdaApp": "lambda",
    "ECSApp": "ecs",
}
KINDS = tuple(_PLUGIN)

_STAGE_KEYS = ("timeout", "skipOn")  # on the stage today, among its options before


def to_application(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Rewrite the body of an older kind; what is wrong in it is left for the decoder to say."""
    plugin = _PLUGIN[kind]
    keys = {key.lower() for key in (_KUBERNETES_KEYS if plugin == "kubernetes" else _PLATFORM_KEYS)}
    section = {key: value for key, value in spec.items() if key.lower() in keys}
    rest = {key: value for key, value in spec.items() if key.lower() not in keys}
    plugins = rest.get("plugins")
    if plugins is None or isinstance(plugins, dict):
        own = (plugins or {}).get(plugin)
        merged = {**section, **own} if isinstance(own, dict) else section
        rest["plugins"] = {**(plugins or {}), plugin: merged}
    rest["planner"] = _planner(kind, section.get("input"), rest.get("planner"))
    pipeline = rest.get("pipeline")
    stages = pipeline.get("stages") if isinstance(pipeline, dict) else None
    if isinstance(stages, list):
        rest["pipeline"] = {**rest["pipeline"], "stages": [_stage(stage) for stage in stages]}
    return rest


def _planner(kind: str, platform_input: Any, planner: Any) -> Any:
    """Take the rollback switch from where the older kinds had it; Terraform's was off."""
    if planner is not None and not isinstance(planner, dict):
        return planner
    switch = platform_input.get("autoRollback") if isinstance(platform_input, dict) else None
    if switch is None and kind == "TerraformApp":
        switch = False
    return planner if switch is None else {"autoRollback": switch, **(planner or {})}


def _stage(stage: Any) -> Any:
    options = stage.get("with") if isinstance(stage, dict) else None
    if not isinstance(options, dict):
        return stage
    lifted = {key: options[key] for key in _STAGE_KEYS if options.get(key) is not None}
    return {**lifted, **stage} if lifted else stage
