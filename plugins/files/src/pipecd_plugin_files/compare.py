# SPDX-License-Identifier: Apache-2.0
"""The differences between two trees, and their text. Pure but for the files it is given."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from pipecd_plugin_files.config import IgnoreRule
from pipecd_plugin_files.entry import Entry, Tree, format_path
from pipecd_sdk.kit import patterns

LARGEST_TEXT: Final = 256 * 1024
"""Bytes of a file that is compared line by line."""
MOST_TOLD: Final = 200
"""Files that are shown one by one; of the others only the number."""
LONGEST_TOLD: Final = 512 * 1024
"""Characters of all of them: a longer text is not read, and costs memory and bandwidth."""


class Difference(Enum):
    """How a file differs from what it should be."""

    CHANGED = "changed"
    MISSING = "missing"
    EXTRA = "extra"
    MODE = "mode"


class FileDifference(NamedTuple):
    """One difference: what is there, and what should be."""

    path: str
    difference: Difference
    there: Entry | None = None
    wanted: Entry | None = None


def compare(there: Tree, wanted: Tree) -> list[FileDifference]:
    """Returns every difference between two trees, by path."""
    found: list[FileDifference] = []
    for path in sorted(there.keys() | wanted.keys()):
        is_there, should_be = there.get(path), wanted.get(path)
        if is_there is None:
            found.append(FileDifference(path=path, difference=Difference.MISSING, wanted=should_be))
        elif should_be is None:
            found.append(FileDifference(path=path, difference=Difference.EXTRA, there=is_there))
        elif (is_there.kind, is_there.digest) != (should_be.kind, should_be.digest):
            found.append(_both(path, Difference.CHANGED, is_there, should_be))
        elif is_there.mode != should_be.mode:
            found.append(_both(path, Difference.MODE, is_there, should_be))
    return found


def _both(path: str, difference: Difference, there: Entry, wanted: Entry) -> FileDifference:
    return FileDifference(path=path, difference=difference, there=there, wanted=wanted)


def drop_ignored(
    found: Iterable[FileDifference], rules: Sequence[IgnoreRule]
) -> list[FileDifference]:
    """Returns the differences that no rule ignores."""
    return [each for each in found if not any(_is_meant(each, rule) for rule in rules)]


def _is_meant(found: FileDifference, rule: IgnoreRule) -> bool:
    named = not rule.differences or found.difference.name in rule.differences
    return named and patterns.matches(rule.paths, found.path)


def format_counts(
    found: Iterable[FileDifference], words: dict[Difference, str] | None = None
) -> str:
    """Returns how many there are of each, e.g. `2 changed, 1 missing`."""
    counts = Counter(each.difference for each in found)
    return ", ".join(
        f"{counts[each]} {(words or {}).get(each, each.value)}"
        for each in Difference
        if counts[each]
    )


Read = Callable[[str], bytes | None]
"""The content of a file, None where there is none."""


def format_patch(
    found: Sequence[FileDifference],
    read_there: Read,
    read_wanted: Read,
    hidden: Callable[[str], bool],
) -> str:
    """Returns the differences as a patch from what is there to what should be."""
    parts: list[str] = []
    length = 0
    for each in found[:MOST_TOLD]:
        if length > LONGEST_TOLD:
            break
        parts.append(_format_difference(each, read_there, read_wanted, hidden))
        length += len(parts[-1])
    if (more := len(found) - len(parts)) > 0:
        parts.append(f"… and {more} more files\n")
    return "".join(parts)


def _format_difference(
    found: FileDifference, read_there: Read, read_wanted: Read, hidden: Callable[[str], bool]
) -> str:
    name = format_path(found.path)
    head = f"{found.difference.value}: {name}\n"
    if found.difference is Difference.MODE:
        return f"{head}-mode {_mode(found.there)}\n+mode {_mode(found.wanted)}\n"
    if hidden(found.path):
        return f"{head}(the content is not shown)\n"
    old, new = (
        _lines(found.there, found.path, read_there),
        _lines(found.wanted, found.path, read_wanted),
    )
    if old is None or new is None:
        return f"{head}(not a text, or too long to compare)\n"
    from difflib import unified_diff  # noqa: PLC0415 - only where there is a difference to show

    lines = unified_diff(
        old,
        new,
        f"a/{name}" if found.there else "/dev/null",
        f"b/{name}" if found.wanted else "/dev/null",
    )
    return head + "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _mode(entry: Entry | None) -> str:
    return f"{entry.mode:04o}" if entry else "-"


def _lines(entry: Entry | None, path: str, read: Read) -> list[str] | None:
    if entry is None:
        return []
    if entry.kind == "link":
        return [f"link to {format_path(entry.digest)}\n"]
    if entry.kind != "file" or entry.size > LARGEST_TEXT:
        return None
    data = read(path)
    if data is None or len(data) > LARGEST_TEXT or b"\0" in data:
        return None
    try:
        return data.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
