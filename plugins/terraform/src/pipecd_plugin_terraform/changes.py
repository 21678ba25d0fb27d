# SPDX-License-Identifier: Apache-2.0
"""What a plan would change: counts, and a diff for people. What is sensitive is masked. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pipecd_plugin_terraform.masking import Mask, collect_sensitive
from pipecd_sdk import TargetError
from pipecd_sdk.kit.text import make_printable_line

SENSITIVE: Final = "(sensitive value)"
UNKNOWN: Final = "(known after apply)"
MOST_LINES: Final = 5_000
LONGEST_VALUE: Final = 400
_DEEPEST: Final = 60

_WORDS: Final[Mapping[tuple[str, ...], tuple[str, str]]] = {
    ("create",): ("+", "will be created"),
    ("update",): ("~", "will be changed"),
    ("delete",): ("-", "will be destroyed"),
    ("delete", "create"): ("-/+", "must be replaced"),
    ("create", "delete"): ("+/-", "must be replaced"),
    ("read",): ("<=", "will be read"),
    ("forget",): (".", "will be forgotten, and not destroyed"),
    ("no-op",): (" ", "stays"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """What becomes of one resource."""

    address: str
    actions: tuple[str, ...]
    lines: tuple[str, ...]
    """Of its diff, without a heading."""
    is_imported: bool = False
    moved_from: str = ""

    @property
    def is_change(self) -> bool:
        """Returns whether anything happens to it."""
        return (
            self.actions not in {("no-op",), ("read",)} or self.is_imported or bool(self.moved_from)
        )

    def render(self) -> str:
        """Returns its diff with a heading."""
        _, words = _WORDS.get(self.actions, ("~", "/".join(self.actions)))
        words = "will be imported" if self.is_imported and self.actions == ("no-op",) else words
        moved = f", was {self.moved_from}" if self.moved_from else ""
        return "\n".join([f"# {self.address} {words}{moved}", *self.lines])


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All that a plan would change."""

    resources: Sequence[ResourceChange]
    outputs: Sequence[str]
    """Lines of the diff of outputs."""
    mask: Mask = field(default_factory=Mask, compare=False)

    @property
    def is_empty(self) -> bool:
        """Returns whether there is nothing to apply."""
        return not self.outputs and not any(each.is_change for each in self.resources)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Returns how many would be imported, added, changed and destroyed."""
        acts = [each.actions for each in self.resources]
        return (
            sum(each.is_imported for each in self.resources),
            sum("create" in each for each in acts),
            sum(each == ("update",) for each in acts),
            sum("delete" in each for each in acts),
        )

    @property
    def summary(self) -> str:
        """Returns the counts in words."""
        if self.is_empty:
            return "no changes"
        imported, added, changed, destroyed = self.counts
        first = f"{imported} to import, " if imported else ""
        moved = sum(bool(each.moved_from) for each in self.resources)
        last = f", {moved} to move" if moved else ""
        if not any(self.counts) and not moved and self.outputs:
            return "changes to outputs only"
        return f"{first}{added} to add, {changed} to change, {destroyed} to destroy{last}"

    def render(self) -> str:
        """Returns the whole diff, cut where it is too long."""
        parts = [each.render() for each in self.resources if each.is_change]
        if self.outputs:
            parts.append("\n".join(["# outputs", *self.outputs]))
        lines = "\n\n".join(parts).split("\n") if parts else []
        if len(lines) > MOST_LINES:
            more = len(lines) - MOST_LINES
            lines = [*lines[:MOST_LINES], f"… and {more} more lines"]
        return self.mask.apply("\n".join(lines))


def read_changes(plan: Mapping[str, Any], mask: Mask | None = None) -> Changes:
    """Returns what a plan as `show -json` prints it would change. Raises TargetError."""
    try:
        known = mask.values if mask is not None else ()
        mask = Mask([*known, *_collect_sensitive(plan)])
        resources = [_read_resource(each) for each in plan.get("resource_changes") or []]
        outputs = [
            line
            for name, change in sorted((plan.get("output_changes") or {}).items())
            for line in _compare_output(name, change)
        ]
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise TargetError(f"the plan cannot be read: {type(error).__name__}") from error
    return Changes(resources=resources, outputs=outputs, mask=mask)


def _collect_sensitive(plan: Mapping[str, Any]) -> Iterator[str]:
    changes = [each["change"] for each in plan.get("resource_changes") or []]
    for change in [*changes, *(plan.get("output_changes") or {}).values()]:
        for side in ("before", "after"):
            yield from collect_sensitive(change.get(side), change.get(f"{side}_sensitive"))
    values = plan.get("variables") or {}
    root = (plan.get("configuration") or {}).get("root_module") or {}
    for name, declared in (root.get("variables") or {}).items():
        given = values.get(name)
        if declared.get("sensitive") and isinstance(given, dict):
            yield from collect_sensitive(given.get("value"), marks=True)


def _read_resource(given: Mapping[str, Any]) -> ResourceChange:
    change = given["change"]
    actions = tuple(str(each) for each in change["actions"])
    forcing = {_join(path) for path in change.get("replace_paths") or []}
    address = make_printable_line(str(given["address"]))
    deposed = given.get("deposed")
    return ResourceChange(
        address=f"{address} (deposed {make_printable_line(str(deposed))})" if deposed else address,
        actions=actions,
        lines=tuple(_compare(change, forcing)) if actions not in {("no-op",), ("read",)} else (),
        is_imported=bool(change.get("importing")),
        moved_from=make_printable_line(str(given.get("previous_address") or "")),
    )


def _compare_output(name: str, change: Mapping[str, Any]) -> Iterator[str]:
    if tuple(change["actions"]) == ("no-op",):
        return
    shown = dict(change)
    shown["before"], shown["after"] = {name: change.get("before")}, {name: change.get("after")}
    for key in ("after_unknown", "before_sensitive", "after_sensitive"):
        shown[key] = {name: change.get(key)}
    yield from _compare(shown, set())


def _compare(change: Mapping[str, Any], forcing: set[str]) -> Iterator[str]:
    before = dict(flatten(change.get("before"), change.get("before_sensitive"), None))
    after = dict(
        flatten(change.get("after"), change.get("after_sensitive"), change.get("after_unknown"))
    )
    raw_before = dict(flatten(change.get("before"), None, None))
    raw_after = dict(flatten(change.get("after"), None, change.get("after_unknown")))
    for path in sorted(before.keys() | after.keys(), key=_natural):
        old, new = before.get(path), after.get(path)
        force = "  # forces replacement" if path in forcing else ""
        if old is None:
            yield f"+ {path} = {new}{force}"
        elif new is None:
            yield f"- {path} = {old}{force}"
        elif old != new or _is_hidden_change(path, raw_before, raw_after):
            yield f"~ {path} = {old} -> {new}{force}"


def _is_hidden_change(path: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Returns whether masked values differ: at the path itself, or below it."""

    def pick_below(values: Mapping[str, str]) -> dict[str, str]:
        heads = (f"{path}.", f"{path}[")
        return {key: value for key, value in values.items() if key == path or key.startswith(heads)}

    return pick_below(before) != pick_below(after)


def flatten(
    value: Any, sensitive: Any, unknown: Any, path: str = "", depth: int = 0
) -> Iterator[tuple[str, str]]:
    """Yields the leaves of a value by their paths, masked. What is not set is left out.

    Example:
        >>> list(flatten({"a": [1, "x"], "p": "hush"}, {"p": True}, {"id": True}))
        [('a[0]', '1'), ('a[1]', '"x"'), ('p', '(sensitive value)'), ('id', '(known after apply)')]
    """
    if sensitive is True:
        if value is not None or unknown:
            yield path, SENSITIVE
        return
    if unknown is True:
        yield path, UNKNOWN
        return
    if depth > _DEEPEST:
        yield path, "…"
        return
    if isinstance(value, dict) or isinstance(unknown, dict):
        here = value if isinstance(value, dict) else {}
        open_keys = unknown if isinstance(unknown, dict) else {}
        keys = [*here, *(key for key in open_keys if key not in here)]
        for key in keys:
            name = make_printable_line(str(key))
            yield from flatten(
                here.get(key),
                _get_mark(sensitive, key),
                open_keys.get(key),
                f"{path}.{name}" if path else name,
                depth + 1,
            )
        if not keys and value is not None and path:
            yield path, "{}"
        return
    if isinstance(value, list) or isinstance(unknown, list):
        items = value if isinstance(value, list) else []
        open_items = unknown if isinstance(unknown, list) else []
        for index in range(max(len(items), len(open_items))):
            yield from flatten(
                items[index] if index < len(items) else None,
                _get_mark(sensitive, index),
                open_items[index] if index < len(open_items) else None,
                f"{path}[{index}]",
                depth + 1,
            )
        if not items and not open_items and path:
            yield path, "[]"
        return
    if value is not None:
        yield path, format_value(value)


def format_value(value: Any) -> str:
    """Returns a plain value on one line, cut where it is too long."""
    text = make_printable_line(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _get_mark(marks: Any, key: str | int) -> Any:
    if isinstance(marks, dict):
        return marks.get(key)
    if isinstance(marks, list) and isinstance(key, int) and key < len(marks):
        return marks[key]
    return marks if marks is True else None


def _join(path: Sequence[Any]) -> str:
    text = ""
    for each in path:
        text += f"[{each}]" if isinstance(each, int) else f".{each}" if text else str(each)
    return text


def _natural(path: str) -> list[tuple[int, int, str]]:
    """Returns a key that sorts `a[2]` before `a[10]`."""
    parts = path.replace("]", "").replace("[", ".").split(".")
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
