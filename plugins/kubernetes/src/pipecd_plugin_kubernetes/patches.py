# SPDX-License-Identifier: Apache-2.0
"""Changes the manifests of a variant as its stage says, before the variant is made of them.

Each operation changes fields that its path leads to, in the manifest or, with `documentRoot`, in a
document that is a text of the manifest:

- `yaml-replace` puts a value in the place of another. A text stays a text; in the place of anything
  else the value is read as YAML.
- `yaml-add` adds what is not there: a field, entries of a map, items at the end of a list.
- `yaml-remove` removes a field or an item.
- `json-replace` does what `yaml-replace` does, for a document that is JSON and stays JSON.
- `text-regex` replaces what an RE2 expression, given as `path`, finds in the text at
  `documentRoot`: its first group, or all that it matches when it has none.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pipecd_plugin_kubernetes.field_path import BadPathError, Place, find_places, parse_path
from pipecd_plugin_kubernetes.manifest import (
    Manifest,
    ManifestError,
    check_manifest,
    copy_tree,
    name_type,
)
from pipecd_plugin_kubernetes.stage_config import Patch, PatchStep
from pipecd_sdk.kit import regex, yaml

LARGEST_TEXT: Final = 4 * 1024 * 1024
"""Bytes that a text may have after an expression was replaced in it."""


def apply_patches(manifests: Sequence[Manifest], patches: Sequence[Patch]) -> list[Manifest]:
    """Returns the manifests with all patches applied, one after the other. Raises ManifestError."""
    patched = [each.copy() for each in manifests]
    for patch in patches:
        named = (patch.target.kind, patch.target.name)
        at = next((n for n, each in enumerate(patched) if (each.kind, each.name) == named), None)
        if at is None:
            raise ManifestError(
                f"there is no {patch.target.kind} {patch.target.name!r} to patch",
                hint="a patch names the kind and name of a manifest of the application",
            )
        body = patched[at].body
        for number, step in enumerate(patch.ops, start=1):
            where = f"patch of {patched[at].describe()}, operation {number} ({step.op})"
            _apply(body, patch.target.document_root, step, where)
        patched[at] = check_manifest(body, f"{patched[at].origin}, patched")
    return patched


def _apply(body: dict[str, Any], document_root: str, step: PatchStep, where: str) -> None:
    if not document_root:
        if step.op == "text-regex":
            raise ManifestError(
                f"{where}: needs target.documentRoot", hint="it is the path of the text to change"
            )
        _OPERATIONS[step.op](body, step, where)
        return
    place = _find_document(body, document_root, where)
    text: str = place.value
    if step.op == "text-regex":
        place.parent[place.key] = _replace_regex(text, step, where)
        return
    is_json = step.op == "json-replace"
    document = _read_json(text, where) if is_json else _read_yaml(text, where)
    _OPERATIONS[step.op](document, step, where)
    place.parent[place.key] = _write_json(document, text) if is_json else _write(document, text)


def _find_document(body: dict[str, Any], path: str, where: str) -> Place:
    found = [place for place in _find(body, path, where) if place.exists]
    if len(found) != 1:
        said = "nothing is" if not found else f"{len(found)} fields are"
        raise ManifestError(f"{where}: {said} at the documentRoot {path!r}")
    if not isinstance(found[0].value, str):
        raise ManifestError(
            f"{where}: {name_type(found[0].value)} is at the documentRoot {path!r}",
            hint="it must be a text, with a document in it",
        )
    return found[0]


def _find(tree: Any, path: str, where: str) -> list[Place]:
    try:
        return find_places(tree, parse_path(path))
    except BadPathError as error:
        raise ManifestError(f"{where}: {path[:100]!r} is not a path: {error}") from None


def _find_existing(tree: Any, path: str, where: str) -> list[Place]:
    found = [place for place in _find(tree, path, where) if place.exists]
    if not found:
        raise ManifestError(
            f"{where}: nothing is at {path!r}", hint="lists are counted from 0: [0]"
        )
    return found


def _replace(tree: Any, step: PatchStep, where: str) -> None:
    for place in _find_existing(tree, step.path, where):
        is_text = isinstance(place.value, str)
        place.parent[place.key] = _make_value(step, where, is_text=is_text, parse=_read_yaml)


def _replace_json(tree: Any, step: PatchStep, where: str) -> None:
    for place in _find_existing(tree, step.path, where):
        is_text = isinstance(place.value, str)
        place.parent[place.key] = _make_value(step, where, is_text=is_text, parse=_read_json)


def _add(tree: Any, step: PatchStep, where: str) -> None:
    places = _find(tree, step.path, where)
    if not places:
        raise ManifestError(
            f"{where}: there is nothing to add to at {step.path!r}",
            hint="what is above the last name must be there",
        )
    for place in places:
        _add_at(place, _make_value(step, where, is_text=False, parse=_read_yaml), step, where)


def _add_at(place: Place, value: Any, step: PatchStep, where: str) -> None:
    if not place.exists and isinstance(place.parent, dict):
        place.parent[place.key] = value
        return
    if not place.exists:
        raise ManifestError(
            f"{where}: the list has only {len(place.parent)} items, none at {step.path!r}",
            hint="name the list itself, and the value is added to its end",
        )
    there = place.value
    if isinstance(there, list):
        there.extend(value if isinstance(value, list) else [value])
    elif isinstance(there, dict) and isinstance(value, dict):
        if known := sorted(there.keys() & value.keys()):
            raise ManifestError(
                f"{where}: {known[0]!r} is already at {step.path!r}", hint="use yaml-replace"
            )
        there.update(value)
    elif there is None:
        place.parent[place.key] = value
    else:
        raise ManifestError(
            f"{where}: {name_type(there)} is already at {step.path!r}", hint="use yaml-replace"
        )


def _remove(tree: Any, step: PatchStep, where: str) -> None:
    # From the end, so that the places that are still to come stay where they are.
    for place in reversed(_find_existing(tree, step.path, where)):
        if place.exists:
            del place.parent[place.key]


_OPERATIONS: Final[Mapping[str, Callable[[Any, PatchStep, str], None]]] = {
    "yaml-replace": _replace,
    "yaml-add": _add,
    "yaml-remove": _remove,
    "json-replace": _replace_json,
}


def _make_value(
    step: PatchStep, where: str, *, is_text: bool, parse: Callable[[str, str], Any]
) -> Any:
    """Returns the value of an operation, a tree of its own for each place."""
    if isinstance(step.value, str):
        return step.value if is_text else copy_tree(parse(step.value, f"{where}: the value"))
    if is_text and isinstance(step.value, bool | int | float):
        return yaml.dump(step.value).removesuffix("...\n").strip()
    return copy_tree(step.value)


def _read_yaml(text: str, where: str) -> Any:
    try:
        documents = yaml.load_all(text)
    except yaml.YamlError as error:
        raise ManifestError(f"{where} is not YAML: {error}") from None
    if len(documents) > 1:
        raise ManifestError(f"{where} has {len(documents)} YAML documents, only one can be changed")
    return copy_tree(documents[0]) if documents else None


def _read_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ManifestError(f"{where} is nested too deep") from None
    except ValueError as error:
        raise ManifestError(
            f"{where} is not JSON: {error}", hint="a text needs quotes of its own"
        ) from None


def _write(document: Any, before: str) -> str:
    text = yaml.dump(document)
    return text if before.endswith("\n") else text.removesuffix("\n")


def _write_json(document: Any, before: str) -> str:
    indent = 2 if "\n" in before.strip() else None
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    return f"{text}\n" if before.endswith("\n") else text


def _replace_regex(text: str, step: PatchStep, where: str) -> str:
    try:
        pattern = regex.compile_regex(step.path)
    except regex.BadRegexError as error:
        raise ManifestError(
            f"{where}: {step.path[:100]!r} is not a regular expression: {error}"
        ) from None
    value = str(_make_value(step, where, is_text=True, parse=_read_yaml)).encode(errors="replace")
    content = text.encode(errors="replace")
    kept, at, size = [], 0, 0
    position = 0
    while found := pattern.search(content, position):
        position = found[0][1]
        if found[0][0] == position:
            raise ManifestError(f"{where}: {step.path[:100]!r} matches where there is nothing")
        start, end = found[1] if pattern.groups and found[1][0] >= 0 else found[0]
        kept += [content[at:start], value]
        size += start - at + len(value)
        at = end
        if size > LARGEST_TEXT:
            raise ManifestError(f"{where}: the text would have more than {LARGEST_TEXT} bytes")
    if not kept:
        raise ManifestError(f"{where}: {step.path[:100]!r} is not found in the text")
    return b"".join([*kept, content[at:]]).decode(errors="replace")
