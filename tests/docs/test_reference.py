# SPDX-License-Identifier: Apache-2.0
"""The generated reference says what the loader does, and nothing in it is left without a word."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pipecd_model.config.describe import field_text
from pipecd_model.config.document import KINDS
from pipecd_model.config.jsonschema import NAMES, document_schema
from pipecd_model.config.schemastruct import struct_from_schema
from pipecd_model.config.shape import shape
from pipecd_model.known_plugins import load_known_plugins

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_docs", ROOT / "tools" / "gen_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "gen_docs.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr


def test_no_page_is_left_of_what_is_gone(generator: ModuleType) -> None:
    wanted = {ROOT / path for path, _ in generator.pages()}

    assert {file for file in (ROOT / "docs/reference").rglob("*") if file.is_file()} == wanted


def test_every_setting_is_explained(generator: ModuleType) -> None:
    structs = {struct for cls in KINDS.values() for struct, _ in generator._structs(cls)}
    structs |= {
        struct_from_schema(schema)
        for plugin in load_known_plugins().values()
        for schema in plugin.stages.values()
    }

    mute = [
        f"{struct.__name__}.{each.name}"
        for struct in structs
        for each in shape(struct).fields
        if not field_text(struct, each) and not (each.key == "config" and struct.variants)
    ]
    assert sorted(mute) == []


def test_links_within_the_reference_lead_somewhere() -> None:
    for page in (ROOT / "docs/reference").glob("*.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("kind", NAMES)
def test_every_reference_in_a_schema_is_defined(kind: str) -> None:
    schema = document_schema(kind)
    text = json.dumps(schema)

    names = set(re.findall(r'"#/\$defs/(\w+)"', text))
    assert names == set(schema["$defs"])


def test_a_schema_knows_the_spellings_of_the_documents() -> None:
    definitions: dict[str, Any] = document_schema("Piped")["$defs"]
    assert {"plugin", "plugins"} <= definitions["PipedConfig"]["properties"].keys()
    assert {"url", "sourceURL"} <= definitions["PluginConfig"]["properties"].keys()
    stage = document_schema("KubernetesApp")["$defs"]["StageConfig"]["properties"]
    assert {"runs", "runsOnRollback", "env", "with"} <= stage.keys()
