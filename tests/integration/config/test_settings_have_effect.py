# SPDX-License-Identifier: Apache-2.0
"""Every field of every kind of file is read by something, or its author is told that it is not.

A new field fails here until one of the two lists has it; a field that begins to work, until its
line is struck. The options of plugins have one list, `WITHOUT_EFFECT`: a plugin reads its options
in its own package.
"""

import ast
import importlib
import importlib.metadata
import importlib.util
import json
import re
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.config.describe import field_text
from pipecd_model.config.document import KINDS
from pipecd_model.config.jsonschema import document_schema
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.shape import Field, shape
from pipecd_model.config.unserved import UNSERVED
from pipecd_model.lint import lint
from pipecd_sdk import StagePlugin
from pipecd_test_support.config_readers import READERS

OF_PLUGINS = frozenset({"AnalysisTemplate"})
"""Kinds that a plugin reads from the repository by itself."""

REFUSED = frozenset({"PostgresqlConfig"})
"""Sections that are judged elsewhere."""

WITHOUT_EFFECT = frozenset(
    {
        "AnalysisOptions.restart_threshold",
        "CloudRunOptions.quick_sync",
        "Input.kubectl_version",
        "KubernetesTarget.kubectl_version",
        "LambdaOptions.quick_sync",
        "LambdaTarget.aws_api_polling_interval",
        "TargetInput.kubectl_version",
        "TerraformOptions.quick_sync",
    }
)
"""Options of plugins that are read for older files; their descriptions say so."""
SAYS_SO = re.compile("[Rr]ead for|not used|Nothing|there are none")

READ_OTHERWISE = frozenset(
    {
        "StageMetricConfig.canary_args",  # by the name of the variant
        "StageMetricConfig.baseline_args",
        "StageMetricConfig.primary_args",
        "TerraformOptions.input",  # put among the options that it stands beside
    }
)
"""Options of plugins that no attribute of their own name reads."""

SHARED = ("pipecd_aws",)
"""Packages that read options for several plugins."""


def find_structs(kind: Any) -> Iterator[type[ConfigModel]]:
    """Yields the structs that a type holds: itself, of a list, of a mapping, of a choice."""
    if isinstance(kind, type) and issubclass(kind, ConfigModel):
        yield kind
    for inner in typing.get_args(kind):
        yield from find_structs(inner)


def walk(cls: type[ConfigModel], seen: set[type[ConfigModel]]) -> Iterator[tuple[str, str, Any]]:
    """Yields struct, field and type of every setting below a struct that is not unserved whole."""
    if cls in seen or cls.__name__ in REFUSED:
        return
    seen.add(cls)
    for field in shape(cls).fields:
        if field.name != "type" or not cls.variants:  # that one chooses what `config` is
            yield cls.__name__, field.name, field.type
        if f"{cls.__name__}.{field.name}" not in UNSERVED:
            for inner in find_structs(field.type):
                yield from walk(inner, seen)
    for variant in cls.variants.values():
        yield from walk(variant, seen)


def list_settings() -> list[tuple[str, str, Any]]:
    seen: set[type[ConfigModel]] = set()
    return [
        setting
        for name, kind in KINDS.items()
        if name not in OF_PLUGINS
        for setting in walk(kind, seen)
    ]


SETTINGS = list_settings()


@cache
def find_attributes(module: str) -> frozenset[str]:
    """The names of all attributes that a module reads."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"there is no module {module}"
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    return frozenset(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


@pytest.mark.parametrize(
    ("struct", "field", "kind"), SETTINGS, ids=[f"{each[0]}.{each[1]}" for each in SETTINGS]
)
def test_a_setting_is_read_or_said_to_have_no_effect(struct: str, field: str, kind: Any) -> None:
    reader = READERS.get(struct, {}).get(field)
    if f"{struct}.{field}" in UNSERVED:
        assert reader is None, "it works now: strike its line in pipecd_model.config.unserved"
        return
    if reader is None and any(find_structs(kind)):
        return  # only a section: its own settings are judged
    assert reader is not None, (
        f"nothing reads {struct}.{field}: name its reader in config_readers, or add it to"
        " pipecd_model.config.unserved, so that its author is told"
    )
    assert field in find_attributes(reader), f"{reader} does not read {struct}.{field} any more"


def test_the_lists_name_only_what_there_is() -> None:
    known = {f"{struct}.{field}" for struct, field, _ in SETTINGS}
    read = {f"{struct}.{field}" for struct, fields in READERS.items() for field in fields}

    assert sorted(UNSERVED.keys() - known) == []
    assert sorted(read - known) == []


@pytest.mark.parametrize(
    ("kind", "spec", "paths"),
    [
        ("Application", "driftDetection: {ignoreFields: ['a:b:c:d#e']}", ["spec.driftDetection"]),
        (
            "Application",
            "{driftDetection: {ignoreFields: ['a:b:c:d#e']}, notification: {mentions: []}}",
            ["spec.driftDetection", "spec.notification"],
        ),
        ("Application", "trigger: {onOutOfSync: {disabled: true}}", []),
        ("Application", "notification: {mentions: []}", ["spec.notification"]),
        (
            "KubernetesApp",
            "driftDetection: {ignoreFields: ['a:b:c:d#e']}",
            ["spec.driftDetection"],
        ),
        ("EventWatcher", "events: []", []),
        ("ControlPlane", "cache: {ttl: 1m}", ["spec.cache"]),
        ("ControlPlane", "filestore: {config: {path: /a}}", []),
        (
            "ControlPlane",
            "filestore: {type: S3, config: {bucket: a, region: b, roleARN: c}}",
            ["spec.filestore.config.roleARN"],
        ),
    ],
)
def test_lint_notes_what_has_no_effect_and_nothing_else(
    kind: str, spec: str, paths: list[str]
) -> None:
    text = f"apiVersion: pipecd.dev/v1beta1\nkind: {kind}\nspec:\n  {spec}\n"
    problems = lint(text, file="a.yaml")

    assert problems.faults == ()
    noted = [each for each in problems.warnings if "has no effect" in each.message]
    assert [each.path for each in noted] == paths
    assert all(each.line for each in noted), "its place in the file is known"


def test_the_reference_and_editors_say_so_too() -> None:
    schema = json.dumps(document_schema("Application"), ensure_ascii=False)

    assert "Has no effect: no field is left out of the comparison yet." in schema


def list_plugin_classes() -> Iterator[type[StagePlugin]]:
    """Yields the classes of all plugins of this project."""
    entries = importlib.metadata.entry_points(group="pipecd.plugins")
    for entry in sorted(entries, key=lambda each: each.name):
        module = importlib.import_module(entry.module)
        package = module.__name__.partition(".")[0]
        found = [
            each
            for each in vars(module).values()
            if isinstance(each, type)
            and issubclass(each, StagePlugin)
            and each.__module__.startswith(package)
        ]
        yield from (
            each
            for each in found
            if not any(issubclass(other, each) for other in found if other is not each)
        )


def list_plugin_settings() -> Iterator[tuple[type[StagePlugin], type[ConfigModel], Any]]:
    """Yields plugin, struct and field of every option of every plugin."""
    for cls in list_plugin_classes():
        plugin = cls()
        tops = [
            plugin.config_type(),
            plugin.target_config if plugin.needs_targets else None,
            plugin.application_config if plugin.has_application_config() else None,
            *(stage.config for stage in plugin.stages.values()),
        ]
        seen: set[type[ConfigModel]] = set()
        for top in tops:
            for _ in walk(top, seen) if top is not None else ():
                pass
        for struct in sorted(seen, key=lambda each: (each.__module__, each.__qualname__)):
            yield from ((cls, struct, field) for field in shape(struct).fields)


PLUGIN_SETTINGS = [*list_plugin_settings()]


@cache
def find_package_attributes(package: str) -> frozenset[str]:
    """The names of all attributes that the modules of a package read.

    Without what the rules of structs read: that they judge an option gives it no effect.
    """
    spec = importlib.util.find_spec(package)
    assert spec is not None
    found: set[str] = set()
    for folder in spec.submodule_search_locations or ():
        for file in Path(folder).rglob("*.py"):
            waiting: list[ast.AST] = [ast.parse(file.read_text())]
            while waiting:
                node = waiting.pop()
                if isinstance(node, ast.FunctionDef) and "report" in [
                    each.arg for each in node.args.args
                ]:
                    continue
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.add(node.attr)
                waiting += ast.iter_child_nodes(node)
    return frozenset(found)


@pytest.mark.parametrize(
    ("plugin", "struct", "field"),
    PLUGIN_SETTINGS,
    ids=[
        f"{cls.__name__}-{struct.__name__}.{field.name}" for cls, struct, field in PLUGIN_SETTINGS
    ],
)
def test_an_option_of_a_plugin_is_read_or_said_to_have_no_effect(
    plugin: type[StagePlugin], struct: type[ConfigModel], field: Field
) -> None:
    name = f"{struct.__name__}.{field.name}"
    packages = (plugin.__module__.partition(".")[0], *SHARED)
    is_read = any(field.name in find_package_attributes(each) for each in packages)
    if name in WITHOUT_EFFECT:
        assert not is_read, "it works now: strike its line"
        told = field_text(struct, field) + "".join(
            each.__doc__ or "" for each in find_structs(field.type)
        )
        assert SAYS_SO.search(told), f"the description of {name} does not say that it does nothing"
        return
    assert is_read or name in READ_OTHERWISE, (
        f"nothing of the plugin reads {name}: let it have an effect, or say in its description that"
        " it has none, and name it in WITHOUT_EFFECT"
    )


def test_the_lists_for_plugins_name_only_what_there_is() -> None:
    known = {f"{struct.__name__}.{field.name}" for _, struct, field in PLUGIN_SETTINGS}

    assert len(known) > 150
    assert sorted((WITHOUT_EFFECT | READ_OTHERWISE) - known) == []
