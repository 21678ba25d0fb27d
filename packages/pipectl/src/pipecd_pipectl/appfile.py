# SPDX-License-Identifier: Apache-2.0
"""Writes the text of an application file from a few choices, with comments for who reads it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pipecd_model.known_plugins import load_known_plugins

SCRIPT: Final = "script"
"""The choice of an application that is made of scripts alone, and has no platform."""

_PLAIN: Final = re.compile(r"[A-Za-z_./][A-Za-z0-9_./ -]*[A-Za-z0-9_/]|[A-Za-z_]")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that YAML takes for something else than a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Platform:
    """How a plugin's pipeline looks: the stages before people decide, and those after."""

    summary: str
    first: tuple[tuple[str, str], ...] = ()
    then: tuple[tuple[str, str], ...] = ()


PLATFORMS: Final = {
    SCRIPT: _Platform(summary="your own commands, and nothing else"),
    "files": _Platform(
        summary="a folder of files, to directories",
        first=(("FILES_CANARY_ROLLOUT", "percentage: 10"),),
        then=(("FILES_PRIMARY_ROLLOUT", ""),),
    ),
    "kubernetes": _Platform(
        summary="manifests, to a Kubernetes cluster",
        first=(("K8S_CANARY_ROLLOUT", "replicas: 10%"),),
        then=(("K8S_PRIMARY_ROLLOUT", ""), ("K8S_CANARY_CLEAN", "")),
    ),
    "kubernetes_multicluster": _Platform(
        summary="manifests, to several Kubernetes clusters",
        first=(("K8S_MULTI_CANARY_ROLLOUT", "replicas: 10%"),),
        then=(("K8S_MULTI_PRIMARY_ROLLOUT", ""), ("K8S_MULTI_CANARY_CLEAN", "")),
    ),
    "terraform": _Platform(
        summary="a Terraform module",
        first=(("TERRAFORM_PLAN", ""),),
        then=(("TERRAFORM_APPLY", ""),),
    ),
    "ecs": _Platform(
        summary="a service on Amazon ECS",
        first=(("ECS_CANARY_ROLLOUT", "scale: 30"), ("ECS_TRAFFIC_ROUTING", "canary: 20")),
        then=(
            ("ECS_PRIMARY_ROLLOUT", ""),
            ("ECS_TRAFFIC_ROUTING", "primary: 100"),
            ("ECS_CANARY_CLEAN", ""),
        ),
    ),
    "lambda": _Platform(
        summary="a function on AWS Lambda",
        first=(("LAMBDA_CANARY_ROLLOUT", ""), ("LAMBDA_PROMOTE", "percent: 10")),
        then=(("LAMBDA_PROMOTE", "percent: 100"),),
    ),
    "cloudrun": _Platform(
        summary="a service on Google Cloud Run",
        first=(("CLOUDRUN_PROMOTE", "percent: 10"),),
        then=(("CLOUDRUN_PROMOTE", "percent: 100"),),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptChoice:
    """A script, and what undoes it."""

    run: str
    on_rollback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationChoices:
    """What the author of an application has chosen."""

    plugin: str
    name: str
    is_pipeline: bool
    scripts: tuple[ScriptChoice, ...] = ()
    wait: str = ""
    """How long to hold the pipeline before it goes on, e.g. `5m`; empty for not at all."""
    needs_approval: bool = False
    approvers: tuple[str, ...] = ()


def has_quick_sync(plugin: str) -> bool:
    return plugin != SCRIPT


def format_application(choices: ApplicationChoices) -> str:
    """Returns the text of the application file."""
    return "\n".join(_list_lines(choices)) + "\n"


def _list_lines(choices: ApplicationChoices) -> Iterator[str]:
    platform = PLATFORMS[choices.plugin]
    yield "apiVersion: pipecd.dev/v1beta1"
    yield "kind: Application"
    yield "spec:"
    yield f"  name: {_quote(choices.name)}"
    if choices.plugin != SCRIPT:
        yield "  plugins:"
        yield f"    {choices.plugin}: {{}}"
    if not choices.is_pipeline:
        quick_sync = ", ".join(load_known_plugins()[choices.plugin].quick_sync_stages)
        yield f"  # Without a pipeline, a deployment is a quick sync: {quick_sync}."
        return
    if choices.plugin == SCRIPT or choices.scripts or choices.needs_approval or choices.wait:
        yield "  planner:"
        yield "    # Else the first deployment may be a quick sync, which skips the pipeline."
        yield "    alwaysUsePipeline: true"
    yield "  pipeline:"
    yield "    stages:"
    # Scripts alone are what the approval is for; beside a platform they prepare its stages.
    is_script = choices.plugin == SCRIPT
    if not is_script:
        yield from _list_scripts(choices)
    for name, option in platform.first:
        yield from _list_stage(name, option)
    if choices.wait:
        yield from _list_stage("WAIT", f"duration: {_quote(choices.wait)}")
    if choices.needs_approval:
        approvers = ", ".join(json.dumps(each, ensure_ascii=False) for each in choices.approvers)
        yield from _list_stage("WAIT_APPROVAL", f"approvers: [{approvers}]" if approvers else "")
    if is_script:
        yield from _list_scripts(choices)
    for name, option in platform.then:
        yield from _list_stage(name, option)


def _list_scripts(choices: ApplicationChoices) -> Iterator[str]:
    for script in choices.scripts:
        yield from _list_stage("SCRIPT_RUN", f"run: {_quote(script.run)}")
        if script.on_rollback:
            yield f"          onRollback: {_quote(script.on_rollback)}"


def _list_stage(name: str, option: str) -> Iterator[str]:
    yield f"      - name: {name}"
    if option:
        yield "        with:"
        yield f"          {option}"


def _quote(text: str) -> str:
    """Returns a text as YAML: as it is where that is safe, else in quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
