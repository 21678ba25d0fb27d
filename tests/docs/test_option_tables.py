# SPDX-License-Identifier: Apache-2.0
"""The keys in the tables of the pages about plugins are those that the plugins read."""

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.known_plugins import load_known_plugins

ROOT = Path(__file__).parents[2]
KEY = re.compile(r"`(\.?[a-z][A-Za-z.]*)`")
STAGE = re.compile(r"`([A-Z][A-Z0-9_]+)`")
PAGES = {"ecs": 15, "lambda": 10, "cloudrun": 6, "terraform": 18, "analysis": 20, "kubernetes": 4}
"""Pages, which are called as their plugins, and how many keys their tables have at least."""


def read_tables(page: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Yields the heading of each table's first two columns, and the cells of its rows."""
    lines = iter((ROOT / "docs" / f"{page}.md").read_text().splitlines())
    for line in lines:
        if line.startswith("| "):
            rows = [each.strip("|").split("|") for each in takewhile(lambda x: x[:1] == "|", lines)]
            yield "|".join(line.split("|")[1:3]).strip(), rows[1:]


def find_property(schema: dict[str, Any], path: str) -> dict[str, Any] | None:
    """The schema of a key, which may be a path of keys; None when there is none."""
    found: dict[str, Any] | None = schema
    for key in path.split("."):
        if found is not None and "$ref" in found:
            found = schema["$defs"][found["$ref"].rpartition("/")[2]]
        found = (found or {}).get("properties", {}).get(key)
    return found


def list_keys(cell: str) -> Iterator[str]:
    """The keys in a cell; one that begins with a dot stands beside the one before."""
    above = ""
    for key in KEY.findall(cell):
        path = f"{above}{key}" if key[0] == "." else key
        above = path.rpartition(".")[0]
        yield path


def list_documented(page: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields each key that the tables of a page have, with the schema that it belongs to."""
    plugin = load_known_plugins()[page]
    sections = {
        "`deployTargets[].config`": plugin.deploy_target_config,
        "`plugins[].config`": plugin.plugin_config,
        f"`spec.plugins.{page}`": plugin.application_config,
        f"`plugins.{page}`": plugin.application_config,
        "Option": plugin.application_config,
    }
    for heading, rows in read_tables(page):
        first, _, second = (each.strip() for each in heading.partition("|"))
        for row in rows:
            if (schema := sections.get(first)) is not None:
                yield from ((dict(schema), key) for key in list_keys(row[0]))
            elif (first, second) == ("Stage", "`with`"):
                (stage,) = STAGE.findall(row[0])
                options = dict(plugin.stages.get(stage, {}))
                yield from ((options, key) for key in list_keys(row[1]))
            elif second == "Options of `config`":
                kind = STAGE.findall(row[0])[0].replace("_", "").lower()
                definitions: dict[str, Any] = dict(plugin.plugin_config or {})["$defs"]
                (provider,) = [
                    each for name, each in definitions.items() if name.lower() == f"{kind}provider"
                ]
                known = {
                    "properties": {
                        **definitions["HeaderFile"]["properties"],
                        **provider["properties"],
                    }
                }
                yield from ((known, key) for key in list_keys(row[1]) if "." not in key)


@pytest.mark.parametrize("page", PAGES)
def test_the_keys_in_the_tables_of_a_page_are_those_of_the_schemas(page: str) -> None:
    documented = [*list_documented(page)]

    assert [key for schema, key in documented if find_property(schema, key) is None] == []
    assert len(documented) >= PAGES[page], "the tables are read"
