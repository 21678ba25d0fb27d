# SPDX-License-Identifier: Apache-2.0
"""Changes YAML text in place: moves settings together with their comments.

Every change works on the text between the marks of the parser and parses the text again after it;
text that was not touched stays as it was. Anchors that a change would break are for the caller
to notice: it compares what the text says before and after.
"""

from __future__ import annotations

import json
from textwrap import dedent, indent
from typing import Any

import yaml

from pipecd_model.config import dialect
from pipecd_model.config.path import Path

_STEP = "  "


class Splice:
    """A document's text, and changes to it."""

    def __init__(self, text: str) -> None:
        self.text = text if text.endswith("\n") else f"{text}\n"
        self._root = yaml.compose(self.text, Loader=yaml.CSafeLoader)

    def _change(self, start: int, end: int, new: str) -> None:
        self.text = self.text[:start] + new + self.text[end:]
        self._root = yaml.compose(self.text, Loader=yaml.CSafeLoader)

    def has(self, path: Path) -> bool:
        """Returns whether there is a value at the path, null included."""
        return self._node(path) is not None

    def keys(self, path: Path) -> tuple[str, ...]:
        """Name the keys of the mapping at a path."""
        node = self._node(path)
        return (
            tuple(key.value for key, _ in node.value) if isinstance(node, yaml.MappingNode) else ()
        )

    def copy(self, path: Path) -> str:
        """Give a setting with its key and its comments, as if it stood at the left edge."""
        return self._piece(path)[0]

    def comments_above(self, path: Path) -> str:
        """Give the comments directly above an item of a list, as if they stood at the left edge."""
        start = self._start(self._node(path))
        dash = self.text.rfind("-", 0, start)
        line = self.text.rfind("\n", 0, start) + 1
        if dash < line:
            return ""
        return dedent(self.text[self._start_of_comments(dash, dash - line) : line])

    def inner(self, path: Path) -> list[str]:
        """Give every setting of a mapping so."""
        return [self.copy((*path, key)) for key in self.keys(path)]

    def cut(self, path: Path) -> str:
        """Take a setting out; a mapping that had only this one stays behind empty."""
        piece, start, end = self._piece(path)
        parent = self._node(path[:-1])
        assert isinstance(parent, yaml.MappingNode)  # noqa: S101 - else there was no setting
        if len(parent.value) == 1:
            self._empty(parent, start, end)
        elif parent.flow_style:
            self._cut_from_flow(start, end)
        elif self._shares_its_line(start):
            following = self.text[end:]
            self._change(start, len(self.text), following.lstrip(" "))
        else:
            self._change(start, end, "")
        return piece

    def _empty(self, parent: Any, start: int, end: int) -> None:
        if parent.flow_style:
            self._change(self._start(parent), self._end(parent), "{}")
            return
        before = self.text[:start].rstrip()
        if before.endswith(":"):
            self._change(len(before), end - 1, " {}")
        else:  # a dash or a comment stands before it
            lead = "" if self._shares_its_line(start) else " " * parent.start_mark.column
            self._change(start, end - 1, f"{lead}{{}}")

    def _cut_from_flow(self, start: int, end: int) -> None:
        rest = self.text[end:]
        stripped = rest.lstrip()
        if stripped.startswith(","):
            end += len(rest) - len(stripped) + 1
            end += len(self.text[end:]) - len(self.text[end:].lstrip(" "))
        else:
            start = len(self.text[:start].rstrip().removesuffix(","))
        self._change(start, end, "")

    def put(self, path: Path, piece: str) -> None:
        """Add a setting to the mapping at a path, which is made if there is none."""
        node = self._node(path)
        if node is None:
            self.put(path[:-1], f"{path[-1]}:\n{indent(piece, _STEP)}")
        elif isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
            column = node.value[0][0].start_mark.column
            end = self._line_end(self._content_end(node))
            lines = indent(piece.rstrip("\n"), " " * column)
            self._change(end, end, f"\n{lines}")
        elif isinstance(node, yaml.MappingNode) and self._is_in_flow(path):
            end = self._end(node) - 1
            head = self.text[:end].rstrip()
            comma = ", " if node.value else ""
            self._change(len(head), end, f"{comma}{_flow(piece)}")
        else:  # null, or an empty mapping that a block can take the place of
            self._fill(path, piece)

    def _is_in_flow(self, path: Path) -> bool:
        node = self._node(path)
        parent = self._node(path[:-1]) if path else None
        return bool(node and node.value) or (parent is not None and bool(parent.flow_style))

    def _fill(self, path: Path, piece: str) -> None:
        node = self._node(path)
        parent = self._node(path[:-1])
        if parent is not None and parent.flow_style:
            self._change(self._start(node), self._end(node), f"{{{_flow(piece)}}}")
            return
        column = self._key(path).start_mark.column if path else -len(_STEP)
        lines = indent(piece.rstrip("\n"), " " * (column + len(_STEP)))
        start = len(self.text[: self._start(node)].rstrip(" "))
        rest = self.text[self._end(node) :].partition("\n")[0]  # a comment on the same line
        end = self._end(node) + len(rest)
        self._change(start, end, f"{'  ' if rest.strip() else ''}{rest.strip()}\n{lines}")

    def put_after(self, path: Path, piece: str) -> None:
        """Add a setting right behind another one of the same mapping."""
        parent = self._node(path[:-1])
        node = self._node(path)
        if parent is None or node is None:
            return
        if parent.flow_style:
            end = self._end(node)
            self._change(end, end, f", {_flow(piece)}")
            return
        column = self._key(path).start_mark.column
        end = self._line_end(self._content_end(node))
        self._change(end, end, f"\n{indent(piece.rstrip(chr(10)), ' ' * column)}")

    def replace(self, path: Path, written: str) -> None:
        """Replaces the text of a single value."""
        node = self._node(path)
        self._change(self._start(node), self._end(node), written)

    def value(self, path: Path) -> Any:
        """Returns the text of a single value."""
        node = self._node(path)
        return node.value if isinstance(node, yaml.ScalarNode) else None

    # Marks count lines and columns; the text is cut by positions.

    def _position(self, mark: Any) -> int:
        position = 0
        for _ in range(mark.line):
            position = self.text.index("\n", position) + 1
        return position + int(mark.column)

    def _start(self, node: Any) -> int:
        return self._position(node.start_mark)

    def _end(self, node: Any) -> int:
        return self._position(node.end_mark)

    def _content_end(self, node: Any) -> int:
        """Find where the last character of a value stands; comments behind it are not its own."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return self._content_end(last[1] if isinstance(last, tuple) else last)
        end = self._end(node)
        if isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}:
            return len(self.text[:end].rstrip())
        return max(0, end)

    def _line_end(self, position: int) -> int:
        end = self.text.find("\n", position)
        return len(self.text) if end < 0 else end

    def _shares_its_line(self, start: int) -> bool:
        """Returns whether a dash, or anything else, stands before it on its line."""
        return bool(self.text[self.text.rfind("\n", 0, start) + 1 : start].strip())

    def _piece(self, path: Path) -> tuple[str, int, int]:
        parent, key, node = self._node(path[:-1]), self._key(path), self._node(path)
        start = self._start(key)
        end = self._content_end(node)
        if end < start:
            raise yaml.YAMLError("the value stands elsewhere")
        if parent is not None and parent.flow_style:
            return self.text[start:end], start, end
        end = min(self._line_end(end) + 1, len(self.text))
        column = key.start_mark.column
        if self._shares_its_line(start):
            return dedent(" " * column + self.text[start:end]), start, end
        start = self._start_of_comments(start, column)
        return dedent(self.text[start:end]), start, end

    def _start_of_comments(self, start: int, column: int) -> int:
        """Take along the comments directly above, if they are indented like the setting."""
        first = self.text.rfind("\n", 0, start) + 1
        while first > 0:
            above = self.text.rfind("\n", 0, first - 1) + 1
            line = self.text[above : first - 1]
            stripped = line.lstrip(" ")
            if not stripped.startswith("#") or len(line) - len(stripped) != column:
                break
            first = above
        return first

    def _key(self, path: Path) -> Any:
        return self._pair(path)[0]

    def _node(self, path: Path) -> Any:
        node: Any = self._root
        for index in range(len(path)):
            if isinstance(node, yaml.SequenceNode):
                position = path[index]
                node = node.value[position] if isinstance(position, int) else None
            elif isinstance(node, yaml.MappingNode):
                node = _value(node, str(path[index]))
            else:
                return None
        return node

    def _pair(self, path: Path) -> tuple[Any, Any]:
        node = self._node(path[:-1])
        low = str(path[-1]).lower()
        return next((k, v) for k, v in node.value if str(k.value).lower() == low)


def _value(node: Any, key: str) -> Any:
    low = key.lower()
    return next((v for k, v in node.value if str(k.value).lower() == low), None)


def _flow(piece: str) -> str:
    """Write a setting so that it can stand between braces."""
    stripped = piece.strip()
    if "\n" not in stripped and "#" not in stripped and not stripped.endswith(":"):
        return stripped
    value = dialect.parse(piece).value
    return json.dumps(value, ensure_ascii=False)[1:-1]
