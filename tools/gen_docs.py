# SPDX-License-Identifier: Apache-2.0
"""Writes the reference of the configuration files: a page and a JSON Schema per kind.

Both come from the structs that load the files, so they cannot say anything else. `--check` writes
nothing and fails if what is there is not what would be written.
"""

from __future__ import annotations

import argparse
import json
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union

from pipecd_model.config import v0
from pipecd_model.config.amounts import Percentage, Replicas, Share
from pipecd_model.config.describe import field_text, summary
from pipecd_model.config.document import API_VERSION, KINDS
from pipecd_model.config.jsonschema import NAMES, document_schema
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.schemastruct import struct_from_schema
from pipecd_model.config.shape import Field, shape
from pipecd_model.config.structschema import default_of
from pipecd_model.config.values import Duration, Secret
from pipecd_model.known_plugins import load_known_plugins

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path("docs/reference")

WORDS: Mapping[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "whole number",
    float: "number",
    Any: "anything",
    Duration: "duration",
    Percentage: "percentage",
    Replicas: "number or percentage",
    Share: "number",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to work on")
    given = parser.parse_args()
    stale = []
    wanted = dict(pages())
    for path, text in wanted.items():
        file = given.root / path
        if file.exists() and file.read_text() == text:
            continue
        stale.append(str(path))
        if not given.check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    if given.check and stale:
        sys.exit(f"stale, run `make docs`: {', '.join(stale)}")
    print(f"{len(wanted)} files of the reference, {len(stale)} changed")


def pages() -> Iterator[tuple[Path, str]]:
    """Everything that belongs into the reference: path and text."""
    yield FOLDER / "README.md", _index()
    for kind, cls in KINDS.items():
        yield FOLDER / f"{kind.lower()}.md", _page(kind, cls)
    yield FOLDER / "older-kinds.md", _older()
    yield FOLDER / "stage-options.md", _stages()
    for kind in NAMES:
        text = json.dumps(document_schema(kind), indent=2, ensure_ascii=False)
        yield FOLDER / "schemas" / f"{kind}.json", f"{text}\n"


def _index() -> str:
    kinds = "".join(
        f"| [`{kind}`]({kind.lower()}.md) | {summary(cls).splitlines()[0]} |"
        f" [schema](schemas/{kind}.json) |\n"
        for kind, cls in KINDS.items()
    )
    return f"""\
# Configuration files

{_GENERATED}
Every file has the same envelope:

```yaml
apiVersion: {API_VERSION}
kind: Application
spec: {{}}
```

| Kind | What it is | For editors |
|--|--|--|
{kinds}
Files of the [older kinds](older-kinds.md) load too. What the stages of well-known plugins take is
in [stage options](stage-options.md).

Keys are read whatever their case. Unknown keys are told when a file is used and refused by
`pipectl lint`. A value of zero, an empty text or an empty list means the default; only `true` and
`false` are always taken as they are written.

* A **duration** is written as `90s`, `5m` or `1h30m`; a bare number counts nanoseconds.
* A **percentage** is a whole number with or without `%`.
* A **path pattern** is a glob: `*` stays within one folder, `**` does not, `!` excludes.
* A **secret** is never printed, not even in an error.
"""


_GENERATED = "<!-- Written by tools/gen_docs.py from the structs that load the files. -->\n"


def _page(kind: str, cls: type[ConfigModel]) -> str:
    return (
        f"# {kind}\n\n{_GENERATED}\n{summary(cls)}\n\n"
        f"The [JSON Schema](schemas/{kind}.json) is for editors;"
        f" `pipectl schema {kind}` prints it.\n"
        + "".join(_section(struct, path) for struct, path in _structs(cls))
    )


def _structs(cls: type[ConfigModel], top: str = "spec") -> Iterator[tuple[type[ConfigModel], str]]:
    """Every struct of a document once, with the path at which it is first met."""
    seen: set[type[ConfigModel]] = set()
    waiting: list[tuple[type[ConfigModel], str]] = [(cls, top)]
    while waiting:
        struct, path = waiting.pop(0)
        if struct in seen:
            continue
        seen.add(struct)
        yield struct, path
        inner = [
            (kind, f"{path}.{each.key}{marks}")
            for each in shape(struct).fields
            for kind, marks in _inner(struct, each)
        ]
        waiting = [*inner, *waiting]


def _inner(cls: type[ConfigModel], each: Field) -> Iterator[tuple[type[ConfigModel], str]]:
    if each.key == "config" and cls.variants:
        for name, kind in cls.variants.items():
            yield kind, f" of type {name}"
        return
    yield from _find_structs(each.type, "")


def _find_structs(kind: Any, marks: str) -> Iterator[tuple[type[ConfigModel], str]]:
    if isinstance(kind, type) and issubclass(kind, ConfigModel):
        yield kind, marks
        return
    origin = typing.get_origin(kind)
    suffix = "[]" if origin is tuple else ".<name>" if origin is dict else ""
    for argument in typing.get_args(kind):
        yield from _find_structs(argument, marks + suffix)


def _section(cls: type[ConfigModel], path: str) -> str:
    text = "" if path == "spec" else f"\n{summary(cls)}\n"
    return f"\n## `{path}`\n{text}\n{_table(cls)}"


def _table(cls: type[ConfigModel]) -> str:
    rows = [
        f"| `{each.key}` | {_word(each.type)} | {_default(each)} | {_cell(field_text(cls, each))} |"
        for each in shape(cls).fields
    ]
    rows += [
        f"| `{alias}` | | | Another spelling of `{key}`. |" for alias, key in cls.aliases.items()
    ]
    rows += [f"| `{key}` | | | Read as `{place}`. |" for key, place in cls.elsewhere.items()]
    if not rows:
        return "It takes nothing.\n"
    return "| Key | Type | Default | Meaning |\n|--|--|--|--|\n" + "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _default(each: Field) -> str:
    if each.required:
        return "**required**"
    value = default_of(each)
    if value is None:
        return ""
    return f"`{json.dumps(value)}`" if not isinstance(value, str) else f"`{value}`"


def _word(kind: Any) -> str:
    if kind in WORDS:
        return WORDS[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Union or origin is types.UnionType:
        words = dict.fromkeys(_word(each) for each in arguments if each is not type(None))
        return " or ".join(words)
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments if each != "")
    if origin is tuple:
        return f"list: {_word(arguments[0])}"
    if origin is dict:
        return "mapping" if arguments[1] is Any else f"mapping: {_word(arguments[1])}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{member.value}`" for member in kind)
    if isinstance(kind, type) and issubclass(kind, Secret):
        return "secret"
    return "section" if isinstance(kind, type) and issubclass(kind, ConfigModel) else "number"


def _older() -> str:
    rows = "".join(
        f"| [`{kind}`](schemas/{kind}.json) | `{plugin}` |"
        f" {', '.join(f'`{key}`' for key in v0.section_keys(kind))} |\n"
        for kind, plugin in v0.PLUGIN.items()
    )
    return f"""\
# Older kinds

{_GENERATED}
Application files of these kinds load as they are. What belonged to the platform is read as the
section of its plugin, `spec.plugins.<plugin>`; everything else is as in
[`Application`](application.md). `pipectl migrate application-config` rewrites them and keeps
comments.

| Kind | Plugin | Keys that are read as its section |
|--|--|--|
{rows}
* `input.autoRollback` is read as `planner.autoRollback`; for `TerraformApp` it is off unless
  written.
* The settings of `TerraformApp` stand directly in the section of its plugin, without `input`.
* An `ECSApp` without a service definition is a task of its own, unless `runStandaloneTask` says
  otherwise.
* `timeout` and `skipOn` among a stage's options are read as those of the stage.
* The kind becomes the label `kind`, e.g. `KUBERNETES`.
"""


def _stages() -> str:
    text = """\
# Stage options

<!-- Written by tools/gen_docs.py from how plugins describe themselves. -->

What the stages of well-known plugins take under `with`. `pipectl lint` judges by it where a plugin
is not installed; where it is, by what that plugin says of itself.
"""
    for plugin in load_known_plugins().values():
        text += f"\n## {plugin.name}\n"
        tables: dict[str, list[str]] = {}
        for name, schema in plugin.stages.items():
            tables.setdefault(_options(struct_from_schema(schema)), []).append(name)
        for table, names in tables.items():
            text += f"\n### {', '.join(f'`{name}`' for name in names)}\n\n{table}"
    return text


def _options(cls: type[ConfigModel]) -> str:
    """The options of a stage, then those that stand in their lists and sections."""
    _, *inner = _structs(cls, "with")
    text = _table(cls)
    for struct, path in inner:
        text += f"\n#### `{path}`\n\n{_table(struct)}"
    return text


if __name__ == "__main__":
    main()
