# SPDX-License-Identifier: Apache-2.0
"""Every field of every kind of file is read by something, or its author is told that it is not.

A new field fails here until one of the two lists has it; a field that begins to work, until its
line is struck.
"""

import ast
import importlib.util
import json
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.config.document import KINDS
from pipecd_model.config.jsonschema import document_schema
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.shape import shape
from pipecd_model.config.unserved import UNSERVED
from pipecd_model.lint import lint
from pipecd_test_support.config_readers import READERS

OF_PLUGINS = frozenset({"AnalysisTemplate"})
"""Kinds that a plugin reads from the repository by itself."""

REFUSED = frozenset({"PostgresqlConfig"})
"""Sections that are judged elsewhere."""


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
