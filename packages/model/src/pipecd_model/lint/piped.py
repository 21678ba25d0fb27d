# SPDX-License-Identifier: Apache-2.0
"""A piped file, judged: the files it names, and what the plugins everybody knows need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pipecd_model import catalogue
from pipecd_model.config.decoder import Findings
from pipecd_model.config.path import Path
from pipecd_model.config.schema import spelling
from pipecd_model.lint.notes import Notes
from pipecd_model.lint.schemas import PluginSchemas, judge
from pipecd_model.lint.surroundings import Files, Surroundings

_ELSEWHERE = "it must exist where the piped runs"


def check(spec: Any, notes: Notes, around: Surroundings) -> None:
    """Say what is wrong beyond what loading it says."""
    if not isinstance(spec, dict):
        return
    files = around.files
    key = spelling(spec, "plugins") or spelling(spec, "plugin") or ""
    plugins = spec.get(key)
    for index, plugin in enumerate(plugins if isinstance(plugins, list) else ()):
        if isinstance(plugin, dict):
            _check_plugin(plugin, ("spec", key, index), notes, files)
            _check_options(plugin, ("spec", key, index), notes, around.plugins)
    if files is None:
        return
    key = spelling(spec, "pipedKeyFile") or ""
    _check_exists(spec.get(key), ("spec", key), notes, files)
    management = spec.get(spelling(spec, "secretManagement") or "")
    config = management.get("config") if isinstance(management, dict) else None
    if not isinstance(config, dict):
        return
    for name in ("privateKeyFile", "oldPrivateKeyFile", "publicKeyFile"):
        key = spelling(config, name) or ""
        path = ("spec", "secretManagement", "config", key)
        value = config.get(key)
        _check_exists(value, path, notes, files)
        text = files.read(value) if isinstance(value, str) and value else None
        if text is not None and "-----BEGIN " not in text:
            notes.fault(path, f"not a PEM key: {value!r}", "make a pair with pipectl keygen")


def _check_plugin(plugin: dict[str, Any], path: Path, notes: Notes, files: Files | None) -> None:
    known = catalogue.BY_NAME.get(str(plugin.get(spelling(plugin, "name") or "")))
    targets = plugin.get(spelling(plugin, "deployTargets") or "")
    if known is not None and known.is_platform and not targets:
        message = f"{known.name} needs at least one deploy target"
        notes.fault((*path, "deployTargets"), message, "where does it deploy to?", on_key=True)
    key = spelling(plugin, "url") or spelling(plugin, "sourceURL") or ""
    url = plugin.get(key)
    if files is not None and isinstance(url, str):
        name = urlsplit(url).path if url.startswith("file://") else url
        if "://" not in name:
            _check_exists(name, (*path, key), notes, files)


def _check_options(
    plugin: dict[str, Any], path: Path, notes: Notes, known: Mapping[str, PluginSchemas]
) -> None:
    """Judge what belongs to the plugin by its schemas, where it is installed."""
    schemas = known.get(str(plugin.get(spelling(plugin, "name") or "")))
    if schemas is None:
        return
    key = spelling(plugin, "config") or ""
    if schemas.plugin_config is not None:
        found = judge(schemas.plugin_config, plugin.get(key) or {}, (*path, key or "config"))
        notes.add(Findings(faults=found))
    list_key = spelling(plugin, "deployTargets") or ""
    targets = plugin.get(list_key)
    if schemas.deploy_target_config is None or not isinstance(targets, list):
        return
    for index, target in enumerate(targets):
        if isinstance(target, dict):
            key = spelling(target, "config") or "config"
            place = (*path, list_key, index, key)
            found = judge(schemas.deploy_target_config, target.get(key) or {}, place)
            notes.add(Findings(faults=found))


def _check_exists(name: Any, path: Path, notes: Notes, files: Files) -> None:
    if isinstance(name, str) and name and not files.exists(name):
        notes.warn(path, f"there is no file {name!r} here", _ELSEWHERE)
