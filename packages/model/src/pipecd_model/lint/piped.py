# SPDX-License-Identifier: Apache-2.0
"""Checks a piped file: the files it names, and what the known plugins need."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pipecd_model.config.path import Path
from pipecd_model.config.schema import find_key, find_value
from pipecd_model.known_plugins import PluginDescription
from pipecd_model.lint.context import FileView, LintContext, Notes
from pipecd_model.lint.schemas import judge

_ELSEWHERE = "it must exist where the piped runs"


def check(spec: Any, notes: Notes, context: LintContext) -> None:
    """Say what is wrong beyond what loading it says."""
    if not isinstance(spec, dict):
        return
    files = context.files
    key = find_key(spec, "plugins") or find_key(spec, "plugin") or ""
    plugins = spec.get(key)
    for index, plugin in enumerate(plugins if isinstance(plugins, list) else ()):
        if isinstance(plugin, dict):
            known = context.plugins.get(str(find_value(plugin, "name")))
            _check_plugin(plugin, ("spec", key, index), notes, files, known)
            if known is not None:
                _check_options(plugin, ("spec", key, index), notes, known)
    if files is None:
        return
    key = find_key(spec, "pipedKeyFile") or ""
    _check_exists(spec.get(key), ("spec", key), notes, files)
    management = find_value(spec, "secretManagement")
    config = management.get("config") if isinstance(management, dict) else None
    if not isinstance(config, dict):
        return
    for name in ("privateKeyFile", "oldPrivateKeyFile", "publicKeyFile"):
        key = find_key(config, name) or ""
        path = ("spec", "secretManagement", "config", key)
        value = config.get(key)
        _check_exists(value, path, notes, files)
        text = files.read(value) if isinstance(value, str) and value else None
        if text is not None and "-----BEGIN " not in text:
            notes.fault(path, f"not a PEM key: {value!r}", "make a pair with pipectl keygen")


def _check_plugin(
    plugin: dict[str, Any],
    path: Path,
    notes: Notes,
    files: FileView | None,
    known: PluginDescription | None,
) -> None:
    targets = find_value(plugin, "deployTargets")
    if known is not None and known.needs_targets and not targets:
        message = f"{known.name} needs at least one deploy target"
        notes.fault((*path, "deployTargets"), message, "where does it deploy to?", on_key=True)
    key = find_key(plugin, "url") or find_key(plugin, "sourceURL") or ""
    url = plugin.get(key)
    if files is not None and isinstance(url, str):
        name = urlsplit(url).path if url.startswith("file://") else url
        if "://" not in name:
            _check_exists(name, (*path, key), notes, files)


def _check_options(
    plugin: dict[str, Any], path: Path, notes: Notes, known: PluginDescription
) -> None:
    """Judge what belongs to the plugin by its own schemas."""
    key = find_key(plugin, "config") or ""
    if known.plugin_config is not None:
        notes.add(judge(known.plugin_config, plugin.get(key) or {}, (*path, key or "config")))
    list_key = find_key(plugin, "deployTargets") or ""
    targets = plugin.get(list_key)
    if known.deploy_target_config is None or not isinstance(targets, list):
        return
    for index, target in enumerate(targets):
        if isinstance(target, dict):
            key = find_key(target, "config") or "config"
            place = (*path, list_key, index, key)
            notes.add(judge(known.deploy_target_config, target.get(key) or {}, place))


def _check_exists(name: Any, path: Path, notes: Notes, files: FileView) -> None:
    if isinstance(name, str) and name and not files.exists(name):
        notes.warn(path, f"there is no file {name!r} here", _ELSEWHERE)
