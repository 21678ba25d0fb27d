# SPDX-License-Identifier: Apache-2.0
"""What a plan would change: counts, and a diff for people. What is sensitive is masked. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pipecd_plugin_terraform.masking import Mask, collect_sensitive
from pipecd_sdk import TargetError
from pipecd_sdk.kit.text import make_printable_line

SENSITIVE: Final = "(sensitive value)"
UNKNOWN: Final = "(known after apply)"
MOST_LINES: Final = 5_000
LONGEST_VALUE: Final = 400
_SHOWN_BEFORE: Final = 60
"""Characters of a long value before the first that has changed."""
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

_ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "noop": ("no-op",),
    "move": ("no-op",),
    "import": ("no-op",),
    "replace": ("delete", "create"),
    "remove": ("forget",),
}
"""What the messages of a plan call otherwise than the plan itself."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A plain value within others."""

    path: str
    text: str
    """As it is shown, at its whole length; what is sensitive is masked."""
    hidden: str = field(default="", repr=False)
    """What is not shown of it, so that a change of that is still one."""


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
    is_applicable: bool = False
    """The program itself says that there is something to apply."""
    note: str = ""
    """What is to be said before the diff."""
    mask: Mask = field(default_factory=Mask, compare=False)

    @property
    def is_empty(self) -> bool:
        """Returns whether there is nothing to apply."""
        has_changes = self.outputs or any(each.is_change for each in self.resources)
        return not (self.is_applicable or has_changes)

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
        if not any(each.is_change for each in self.resources):
            return f"changes to {'outputs' if self.outputs else 'the state'} only"
        return f"{first}{added} to add, {changed} to change, {destroyed} to destroy{last}"

    def render(self) -> str:
        """Returns the whole diff, cut where it is too long."""
        parts = [self.note] if self.note else []
        parts += [each.render() for each in self.resources if each.is_change]
        if self.outputs:
            parts.append("\n".join(["# outputs", *self.outputs]))
        lines = "\n\n".join(parts).split("\n") if parts else []
        if len(lines) > MOST_LINES:
            more = len(lines) - MOST_LINES
            lines = [*lines[:MOST_LINES], f"… and {more} more lines"]
        return self.mask.apply("\n".join(lines))


def read_messages(
    messages: Iterable[Mapping[str, Any]], mask: Mask, *, is_applicable: bool
) -> Changes:
    """Returns what would change by what the program said while it planned: no values.

    For a plan that is too large to be read whole.
    """
    resources: list[ResourceChange] = []
    outputs: list[str] = []
    for message in messages:
        change = message.get("change")
        if isinstance(change, dict):
            resources.append(_read_planned(change))
        found = message.get("outputs")
        for name, output in sorted(found.items()) if isinstance(found, dict) else ():
            if isinstance(output, dict) and output.get("action") not in {None, "noop"}:
                outputs.append(f"~ {make_printable_line(str(name))}")
    return Changes(
        resources=resources,
        outputs=outputs,
        is_applicable=is_applicable,
        note="# the plan is too large for its values to be shown" if is_applicable else "",
        mask=mask,
    )


def _read_planned(change: Mapping[str, Any]) -> ResourceChange:
    action = str(change.get("action", ""))
    before = _get_address(change.get("previous_resource"))
    return ResourceChange(
        address=_get_address(change.get("resource")),
        actions=_ACTIONS.get(action, (action,)),
        lines=(),
        is_imported=action == "import" or bool(change.get("importing")),
        moved_from=before,
    )


def _get_address(resource: object) -> str:
    found = resource.get("addr") if isinstance(resource, dict) else ""
    return make_printable_line(str(found or ""))


def read_changes(
    plan: Mapping[str, Any], mask: Mask | None = None, *, is_applicable: bool = False
) -> Changes:
    """Returns what a plan as `show -json` prints it would change. Raises TargetError."""
    try:
        known = mask.values if mask is not None else ()
        mask = Mask([*known, *_collect_sensitive(plan)])
        resources = [_read_resource(each, mask) for each in plan.get("resource_changes") or []]
        outputs = [
            line
            for name, change in sorted((plan.get("output_changes") or {}).items())
            for line in _compare_output(make_printable_line(str(name)), change, mask)
        ]
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise TargetError(f"the plan cannot be read: {type(error).__name__}") from error
    return Changes(resources=resources, outputs=outputs, is_applicable=is_applicable, mask=mask)


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


def _read_resource(given: Mapping[str, Any], mask: Mask) -> ResourceChange:
    change = given["change"]
    actions = tuple(str(each) for each in change["actions"])
    forcing = {_join(path) for path in change.get("replace_paths") or []}
    address = make_printable_line(str(given["address"]))
    deposed = given.get("deposed")
    has_diff = actions not in {("no-op",), ("read",)}
    return ResourceChange(
        address=f"{address} (deposed {make_printable_line(str(deposed))})" if deposed else address,
        actions=actions,
        lines=tuple(_compare(change, forcing, mask)) if has_diff else (),
        is_imported=bool(change.get("importing")),
        moved_from=make_printable_line(str(given.get("previous_address") or "")),
    )


def _compare_output(name: str, change: Mapping[str, Any], mask: Mask) -> Iterator[str]:
    if tuple(change["actions"]) == ("no-op",):
        return
    shown = dict(change)
    shown["before"], shown["after"] = {name: change.get("before")}, {name: change.get("after")}
    for key in ("after_unknown", "before_sensitive", "after_sensitive"):
        shown[key] = {name: change.get(key)}
    # It changes even where no value is to be shown, e.g. of a list of nothing.
    yield from list(_compare(shown, set(), mask)) or [f"~ {name}"]


def _compare(change: Mapping[str, Any], forcing: set[str], mask: Mask) -> Iterator[str]:
    unknown = change.get("after_unknown")
    before = _find_leaves(change.get("before"), change.get("before_sensitive"), None)
    after = _find_leaves(change.get("after"), change.get("after_sensitive"), unknown)
    for path in sorted(before.keys() | after.keys(), key=_natural):
        old, new = before.get(path), after.get(path)
        force = "  # forces replacement" if path in forcing else ""
        if old is None and new is not None:
            yield f"+ {path} = {shorten(mask.apply(new.text))}{force}"
        elif new is None and old is not None:
            yield f"- {path} = {shorten(mask.apply(old.text))}{force}"
        elif old is not None and new is not None and old != new:
            left, right = _shorten_both(mask.apply(old.text), mask.apply(new.text))
            yield f"~ {path} = {left} -> {right}{force}"


def _find_leaves(value: Any, sensitive: Any, unknown: Any) -> dict[str, Leaf]:
    return {each.path: each for each in iter_leaves(value, sensitive, unknown)}


def shorten(text: str, *, start: int = 0) -> str:
    """Returns a part of a text that is not too long to be shown, from its beginning or a place.

    Example:
        >>> shorten("abcdef", start=3)
        '…def'
    """
    cut = text[start : start + LONGEST_VALUE]
    return f"{'…' if start else ''}{cut}{'…' if start + LONGEST_VALUE < len(text) else ''}"


def _shorten_both(old: str, new: str) -> tuple[str, str]:
    """Returns two texts shortened so that it can be seen where they differ."""
    if old == new or old[:LONGEST_VALUE] != new[:LONGEST_VALUE]:
        return shorten(old), shorten(new)
    shorter = min(len(old), len(new))
    place = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    start = max(0, place - _SHOWN_BEFORE)
    return shorten(old, start=start), shorten(new, start=start)


def iter_leaves(
    value: Any, sensitive: Any, unknown: Any, path: str = "", depth: int = 0
) -> Iterator[Leaf]:
    """Yields the leaves of a value, sensitive ones masked. What is not set is left out.

    Example:
        >>> found = iter_leaves({"a": [1, "x"], "p": "hush"}, {"p": True}, {"id": True})
        >>> [f"{each.path}: {each.text}" for each in found]
        ['a[0]: 1', 'a[1]: "x"', 'p: (sensitive value)', 'id: (known after apply)']
    """
    if sensitive is True:
        if value is not None or unknown:
            yield Leaf(path, SENSITIVE, _write_hidden(value, unknown))
        return
    if unknown is True:
        yield Leaf(path, UNKNOWN)
        return
    if depth > _DEEPEST:
        yield Leaf(path, "…", _write_hidden(value, unknown))
        return
    if isinstance(value, dict) or isinstance(unknown, dict):
        here = value if isinstance(value, dict) else {}
        open_keys = unknown if isinstance(unknown, dict) else {}
        keys = [*here, *(key for key in open_keys if key not in here)]
        for key in keys:
            name = make_printable_line(str(key))
            yield from iter_leaves(
                here.get(key),
                _get_mark(sensitive, key),
                open_keys.get(key),
                f"{path}.{name}" if path else name,
                depth + 1,
            )
        if not keys and value is not None and path:
            yield Leaf(path, "{}")
        return
    if isinstance(value, list) or isinstance(unknown, list):
        items = value if isinstance(value, list) else []
        open_items = unknown if isinstance(unknown, list) else []
        for index in range(max(len(items), len(open_items))):
            yield from iter_leaves(
                items[index] if index < len(items) else None,
                _get_mark(sensitive, index),
                open_items[index] if index < len(open_items) else None,
                f"{path}[{index}]",
                depth + 1,
            )
        if not items and not open_items and path:
            yield Leaf(path, "[]")
        return
    if value is not None:
        yield Leaf(path, format_value(value))


def format_value(value: Any) -> str:
    """Returns a plain value on one line."""
    return make_printable_line(json.dumps(value, ensure_ascii=False))


def _write_hidden(value: Any, unknown: Any) -> str:
    return json.dumps([value, unknown if _has_mark(unknown) else None], sort_keys=True)


def _has_mark(marks: Any) -> bool:
    """Returns whether anything is marked: no marks are written in several ways."""
    if isinstance(marks, dict):
        return any(_has_mark(each) for each in marks.values())
    return any(_has_mark(each) for each in marks) if isinstance(marks, list) else marks is True


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
