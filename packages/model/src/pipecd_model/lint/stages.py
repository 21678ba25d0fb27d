# SPDX-License-Identifier: Apache-2.0
"""The stages of a pipeline, judged without their plugins, by what everybody knows of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pipecd_model import catalogue
from pipecd_model.config import rules
from pipecd_model.config.decoder import Findings, decode
from pipecd_model.config.options import OPTIONS
from pipecd_model.config.path import Path
from pipecd_model.config.pipeline import fold_script_settings
from pipecd_model.config.schema import spelling
from pipecd_model.lint.notes import Notes
from pipecd_model.lint.schemas import judge
from pipecd_model.lint.surroundings import Surroundings


def check(spec: dict[str, Any], notes: Notes, around: Surroundings) -> None:
    """Judge every stage by its name and its options."""
    pipeline = spec.get(spelling(spec, "pipeline") or "")
    stages = pipeline.get(spelling(pipeline, "stages") or "") if isinstance(pipeline, dict) else ()
    for index, stage in enumerate(stages if isinstance(stages, list) else ()):
        if isinstance(stage, dict):
            _check_stage(stage, ("spec", "pipeline", "stages", index), notes, around)


def _check_stage(stage: dict[str, Any], path: Path, notes: Notes, around: Surroundings) -> None:
    name = stage.get(spelling(stage, "name") or "")
    if not isinstance(name, str) or not name or name in catalogue.AUTOMATIC:
        return
    if name not in catalogue.STAGES:
        _check_others(name, stage, path, notes, around)
        return
    stage = fold_script_settings(stage)
    options = stage.get(spelling(stage, "with") or "")
    if options is None or isinstance(options, dict):
        _, found = decode(OPTIONS[name], options, path=(*path, "with"), strict=True)
        notes.add(Findings(faults=found.faults, warnings=found.warnings))
        _check_templates(options or {}, (*path, "with"), notes, around)


def _check_others(
    name: str, stage: dict[str, Any], path: Path, notes: Notes, around: Surroundings
) -> None:
    """Judge a stage of a plugin that only this machine knows, if it does."""
    schemas = [each.stages[name] for each in around.plugins.values() if name in each.stages]
    if not schemas:
        known = (
            *catalogue.STAGES,
            *(each for one in around.plugins.values() for each in one.stages),
        )
        _judge_unknown(name, (*path, "name"), notes, known, chosen=bool(stage.get("plugin")))
        return
    options = stage.get(spelling(stage, "with") or "") or {}
    found = [judge(schema, options, (*path, "with")) for schema in schemas]
    # Of several plugins with a stage of this name one may be meant that is content.
    notes.add(Findings(faults=min(found, key=len)))


def _judge_unknown(
    name: str, path: Path, notes: Notes, known: Collection[str], *, chosen: bool
) -> None:
    """A slip of the pen is a fault; a name like no other belongs to a plugin we do not know."""
    near = rules.nearest(name.upper().replace("-", "_"), known, cutoff=0.85)
    if near and not chosen:
        notes.fault(path, f"no well-known plugin offers the stage {name!r}", near)
    else:
        hint = near or "its plugin must be one that the piped runs"
        notes.warn(path, f"no well-known plugin offers the stage {name!r}", hint)


def _check_templates(
    options: dict[str, Any], path: Path, notes: Notes, around: Surroundings
) -> None:
    if around.templates is None:
        return
    for key in ("metrics", "logs", "https"):
        items = options.get(spelling(options, key) or "")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            template = item.get("template") if isinstance(item, dict) else None
            name = template.get("name") if isinstance(template, dict) else None
            if isinstance(name, str) and name and name not in around.templates:
                notes.fault(
                    (*path, key, index, "template", "name"),
                    f"there is no analysis template {name!r}",
                    rules.nearest(name, around.templates),
                )
