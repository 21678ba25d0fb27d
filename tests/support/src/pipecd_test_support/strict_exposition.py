# SPDX-License-Identifier: Apache-2.0
"""A reader of Prometheus' text format that refuses everything that Go's parser refuses."""

import re
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*"
HELP = re.compile(rf"# HELP ({NAME}) ((?:[^\\\n]|\\[\\n])*)", re.ASCII)
TYPE = re.compile(rf"# TYPE ({NAME}) (counter|gauge|histogram|summary|untyped)", re.ASCII)
VALUE = r'"(?:[^"\\\n]|\\[\\n"])*"'
PAIR = re.compile(rf"({LABEL})=({VALUE})", re.ASCII)
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}={VALUE}(?:,{LABEL}={VALUE})*)\}})? (\S+)", re.ASCII)
NUMBER = re.compile(r"NaN|[+-]?Inf|[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII)
PARTS = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}


@dataclass(slots=True)
class Reading:
    """What was read so far."""

    types: dict[str, str] = field(default_factory=dict)
    helped: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    current: str = ""
    series: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def enter(self, family: str) -> None:
        if family != self.current:
            assert family not in self.closed, f"{family} comes in two places"
            self.closed.add(self.current)
            self.current = family

    def owner(self, name: str) -> str:
        """Go gives `a_sum` to a summary or histogram `a` that it has seen."""
        for part in ("_bucket", "_sum", "_count"):
            owner = name.removesuffix(part)
            if owner != name and part in PARTS.get(self.types.get(owner, ""), ()):
                return owner
        return name


def read_strictly(text: str) -> dict[tuple[str, Labels], float]:
    """All series of a page; fails when Go's parser would, or when a library cannot read it."""
    assert text == "" or text.endswith("\n")
    read = Reading()
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP"):
            head = HELP.fullmatch(line)
            assert head, line
            assert read.owner(head[1]) == head[1], f"{line} is a part of another metric"
            assert head[1] not in read.helped, f"second HELP: {line}"
            read.helped.add(head[1])
            read.enter(head[1])
        elif line.startswith("# TYPE"):
            head = TYPE.fullmatch(line)
            assert head, line
            assert read.owner(head[1]) == head[1], f"{line} is a part of another metric"
            assert head[1] not in read.types, f"second TYPE: {line}"
            assert not any(name == head[1] for name, _ in read.series), f"TYPE after lines: {line}"
            read.enter(head[1])
            read.types[head[1]] = head[2]
        else:
            _read_series(read, line)
    for _ in text_string_to_metric_families(text):
        pass
    return read.series


def _read_series(read: Reading, line: str) -> None:
    found = SAMPLE.fullmatch(line)
    assert found, line
    name, written, value = found.groups()
    family = read.owner(name)
    read.enter(family)
    kind = read.types.get(family, "untyped")
    if kind in PARTS:
        assert name.removeprefix(family) in PARTS[kind], line
    pairs = [(label, _plain(text)) for label, text in PAIR.findall(written or "")]
    labels = tuple(sorted(pairs))
    assert len(dict(labels)) == len(labels), f"a label twice: {line}"
    bound = {"histogram": "le", "summary": "quantile"}.get(kind)
    for label, text in labels:
        if label == bound:
            assert NUMBER.fullmatch(text), line
    assert NUMBER.fullmatch(value), line
    assert (name, labels) not in read.series, f"a series twice: {line}"
    read.series[name, labels] = float(value)


def _plain(written: str) -> str:
    def one(escape: re.Match[str]) -> str:
        return {"n": "\n"}.get(escape[1], escape[1])

    return re.sub(r"\\(.)", one, written[1:-1])
