# SPDX-License-Identifier: Apache-2.0
"""Guides as tests read them: what is typed, what is shown, which files are written.

A block `sh` is typed. A block `text` right after it is what the terminal then shows; so is a
picture of a terminal. A block `yaml` that begins with the name of a file, as in
`# hello/app.pipecd.yaml`, is that file. A command that ends otherwise than well says so in a
comment: `# exits with 1`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w+)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
PICTURE: Final = re.compile(r"\s*!\[[^\]]*\]\((?P<path>[^)]+-terminal\.svg)\)")
FILE: Final = re.compile(r"^# (?P<path>[\w./-]+\.(?:yaml|sh|txt|html))(?::.*)?$", re.MULTILINE)
EXITS: Final = re.compile(r"#.*\bexits with (\d+)")
ANYTHING: Final = "…"

_SAME: Final = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{40}\b"), "HASH"),
    (re.compile(r"\b[0-9a-f]{7,8}\b"), "HASH"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?\b"), "TIME"),
    (re.compile(r"\b(\d+(\.\d+)?(ms|s|m|h|d))+( ago)?\b"), "DURATION"),
    (re.compile(r"(?<![\d.])\d+\.\d+\.\d+(?![\d.])"), "VERSION"),
    (re.compile(r"\b\d{8}T\d{6}-HASH-HASH\b"), "RELEASE"),
    (re.compile(r"\bnow\b"), "DURATION"),
    (re.compile(r"\b(127\.0\.0\.1|localhost):\d+\b"), "ADDRESS"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideBlock:
    """One fenced block of a guide."""

    kind: str
    text: str
    line: int
    start: int
    """Where its text begins in the guide."""
    end: int
    picture: str = ""
    """The picture of a terminal that follows it."""

    @property
    def file(self) -> str:
        """Returns the name of the file that it is; empty if it is none."""
        found = FILE.match(self.text) if self.kind == "yaml" else None
        return found["path"] if found else ""


def read_blocks(text: str) -> list[GuideBlock]:
    """Returns the fenced blocks of a Markdown text, in order."""
    blocks = []
    for found in FENCE.finditer(text):
        after = PICTURE.match(text, found.end())
        indent = found["indent"]
        lines = [line.removeprefix(indent) for line in found["text"].splitlines(keepends=True)]
        blocks.append(
            GuideBlock(
                kind=found["kind"],
                text="".join(lines),
                line=text.count("\n", 0, found.start()) + 1,
                start=found.start("text"),
                end=found.end("text"),
                picture=after["path"] if after else "",
            )
        )
    return blocks


def shown_after(text: str, blocks: Sequence[GuideBlock], index: int) -> GuideBlock | None:
    """Returns the block with what the terminal shows after a typed one, if the guide has one."""
    following = blocks[index + 1] if index + 1 < len(blocks) else None
    if following is None or following.kind != "text":
        return None
    between = text[blocks[index].end : following.start].replace("```text", "").replace("```", "")
    return following if not between.strip() else None


def expected_code(command: str) -> int:
    """Returns the exit code that a typed command says it has."""
    found = EXITS.search(command)
    return int(found[1]) if found else 0


def normalise(line: str) -> str:
    """Returns a line with ids, times and the width of columns made alike."""
    for pattern, instead in _SAME:
        line = pattern.sub(instead, line)
    return line.strip()


def is_shown(shown: str, real: str) -> bool:
    """Returns whether a terminal shows what a guide says, where `…` stands for anything.

    A guide that says nothing but `…` has nothing shown yet.
    """
    if shown.strip() == ANYTHING:
        return False
    wanted = [normalise(line) for line in shown.strip().splitlines()]
    expression = ""
    for line in wanted:
        if line == ANYTHING:
            expression += r"(?:.*\n)*?"
        else:
            parts = [re.escape(part.strip()) for part in line.split(ANYTHING)]
            expression += ".*".join(parts) + r"\n"
    lines = "".join(f"{normalise(line)}\n" for line in real.strip().splitlines())
    return re.fullmatch(expression, lines) is not None
