# SPDX-License-Identifier: Apache-2.0
"""The stages of a pipeline, judged by what their plugins say of themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pipecd_model.config import rules
from pipecd_model.config.path import Path
from pipecd_model.config.pipeline import fold_script_settings
from pipecd_model.config.schema import find_key, find_list, find_mapping, find_value
from pipecd_model.config.v0 import STAGE_KEYS
from pipecd_model.known_plugins import Schema, is_planned_automatically, load_known_plugins
from pipecd_model.lint.context import LintContext, Notes
from pipecd_model.lint.schemas import judge


def check(spec: dict[str, Any], notes: Notes, context: LintContext) -> None:
    """Judge every stage by its name and its options."""
    told: set[str] = set()
    for index, stage in enumerate(find_list(find_mapping(spec, "pipeline"), "stages")):
        name = find_value(stage, "name") if isinstance(stage, dict) else None
        if not isinstance(name, str) or not name:
            continue  # reported when it is loaded
        path = ("spec", "pipeline", "stages", index)
        _check_stage(name, stage, path, notes, context)
        _check_offered(name, (*path, "name"), notes, context, told)


def _check_stage(
    name: str, stage: dict[str, Any], path: Path, notes: Notes, context: LintContext
) -> None:
    if is_planned_automatically(name):
        return  # reported when it is loaded
    if any(name in each.rollback_stages for each in context.installed.values()):
        notes.fault((*path, "name"), f"{name} is added by itself", "remove the stage")
        return
    schemas = _find_schemas(name, context)
    if not schemas:
        known = [each for plugin in context.plugins.values() for each in plugin.stages]
        _judge_unknown(name, (*path, "name"), notes, known, chosen=bool(stage.get("plugin")))
        return
    stage = fold_script_settings(stage)
    options = find_value(stage, "with")
    if options is None or isinstance(options, dict):
        options = options or {}
        found = [judge(schema, _take_own(options, schema), (*path, "with")) for schema in schemas]
        # Of several plugins with a stage of this name one may be meant that is content.
        notes.add(min(found, key=lambda each: len(each.faults)))
        _check_stage_keys(stage, options, schemas, (*path, "with"), notes)
        _check_templates(options, (*path, "with"), notes, context)


def _find_stage_keys(options: dict[str, Any], schema: Schema) -> dict[str, str]:
    """Returns the keys of the stage that stand among its options: the key, and as it is written.

    Those that the plugin has an option of the same name for are the plugin's.
    """
    own = {key.lower() for key in schema.get("properties") or {}}
    return {
        key: written
        for key in STAGE_KEYS
        if key.lower() not in own and (written := find_key(options, key)) is not None
    }


def _take_own(options: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Returns the options that the plugin reads: it passes over those of the stage, too."""
    others = _find_stage_keys(options, schema).values()
    return {key: value for key, value in options.items() if key not in others}


def _check_stage_keys(
    stage: dict[str, Any],
    options: dict[str, Any],
    schemas: Iterable[Schema],
    path: Path,
    notes: Notes,
) -> None:
    """Warn of a key of the stage that stands only among the options, where nobody reads it.

    A file that was migrated for two generations has it in both places, and is fine.
    """
    found = [_find_stage_keys(options, schema) for schema in schemas]
    for key, written in min(found, key=len).items():
        if options[written] is not None and options[written] != find_value(stage, key):
            hint = f"write {key} on the stage itself"
            notes.warn((*path, written), "has no effect under with", hint, on_key=True)


def _find_schemas(name: str, context: LintContext) -> list[Schema]:
    """Return what the installed plugins say of a stage's options; else what is known of them."""
    for plugins in (context.installed, load_known_plugins()):
        if found := [each.stages[name] for each in plugins.values() if name in each.stages]:
            return found
    return []


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


def _check_offered(
    name: str, path: Path, notes: Notes, context: LintContext, told: set[str]
) -> None:
    """Say when a stage that we know is of a plugin that is not there; once for each plugin."""
    if context.piped is None and not context.installed:
        return  # nothing is known of what is there
    offering = [each.name for each in context.plugins.values() if name in each.stages]
    usual = " or ".join(repr(each) for each in offering)
    if not offering or usual in told:
        return  # unknown, which is said already, or said of another stage
    if context.piped is None:
        if any(each in context.installed for each in offering):
            return
        message = f"the stage {name!r} is of the plugin {usual}, which is not installed here"
        notes.warn(path, message, "the piped must run it: check with --piped and its file")
    else:
        running = [each.name for each in context.piped.plugins]
        if set(running) & set(offering):
            return
        if strangers := [each for each in running if each not in context.plugins]:
            message = f"the piped has no plugin {usual}, which offers the stage {name!r}"
            notes.warn(path, message, f"fine if it is another name of {', '.join(strangers)}")
        else:
            message = f"no plugin of the piped offers the stage {name!r}"
            notes.fault(path, message, f"add the plugin {usual} to the piped file")
    told.add(usual)


def _check_templates(
    options: dict[str, Any], path: Path, notes: Notes, context: LintContext
) -> None:
    if context.templates is None:
        return
    for key in ("metrics", "logs", "https"):
        for index, item in enumerate(find_list(options, key)):
            template = item.get("template") if isinstance(item, dict) else None
            name = template.get("name") if isinstance(template, dict) else None
            if isinstance(name, str) and name and name not in context.templates:
                notes.fault(
                    (*path, key, index, "template", "name"),
                    f"there is no analysis template {name!r}",
                    rules.nearest(name, context.templates),
                )
