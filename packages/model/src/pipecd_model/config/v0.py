# SPDX-License-Identifier: Apache-2.0
"""Application files of the older kinds, brought into today's shape before they are decoded.

Each older kind named a platform; today a platform is a plugin, so its settings move to that
plugin's section. Everything else is spelled the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipecd_model.config.schema import spelling

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
    _change(rest, "plugins", lambda plugins: _plugins(plugins, plugin, section))
    _change(rest, "planner", lambda planner: _planner(kind, planner, section))
    if spelling(rest, "pipeline") is not None:
        _change(rest, "pipeline", _pipeline)
    return rest


def _change(
    raw: dict[str, Any], key: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """Replace a mapping that may be missing; anything else there is wrong and stays."""
    key = spelling(raw, key) or key
    value = raw.get(key)
    if value is None or isinstance(value, dict):
        raw[key] = change(value or {})


def _plugins(plugins: dict[str, Any], name: str, section: dict[str, Any]) -> dict[str, Any]:
    own = plugins.get(name)
    return {**plugins, name: {**section, **own} if isinstance(own, dict) else section}


def _planner(kind: str, planner: dict[str, Any], section: dict[str, Any]) -> dict[str, Any]:
    """Take the rollback switch from where the older kinds had it; Terraform's was off."""
    if spelling(planner, "autoRollback") is not None:
        return planner
    platform_input = section.get(spelling(section, "input") or "")
    switch = None
    if isinstance(platform_input, dict):
        switch = platform_input.get(spelling(platform_input, "autoRollback") or "")
    if switch is None and kind == "TerraformApp":
        switch = False
    return planner if switch is None else {**planner, "autoRollback": switch}


def _pipeline(pipeline: dict[str, Any]) -> dict[str, Any]:
    key = spelling(pipeline, "stages") or ""
    stages = pipeline.get(key)
    if not isinstance(stages, list):
        return pipeline
    return {**pipeline, key: [_stage(each) for each in stages]}


def _stage(stage: Any) -> Any:
    options = stage.get(spelling(stage, "with") or "") if isinstance(stage, dict) else None
    if not isinstance(options, dict):
        return stage
    lifted = {
        key: options[written]
        for key in _STAGE_KEYS
        if (written := spelling(options, key)) and spelling(stage, key) is None
    }
    return {**stage, **lifted}
