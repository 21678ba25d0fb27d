# SPDX-License-Identifier: Apache-2.0
"""Prometheus' text format: pages are parsed, relabelled, and written as one page. Pure functions.

The input is untrusted. The output follows the rules of the strictest parser: each family once with
one head, no series twice, no name that two families claim.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

Labels = tuple[tuple[str, str], ...]

NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)

MOST_QUOTES: Final = 64
LONGEST_LINE: Final = 4 * 1024
LONGEST_HELP: Final = 1024
"""Characters. The parser's time grows with the square of the labels of a line: limit the line."""

_PLAIN_COUNTER: Final = re.compile(r"^#[ \t]+TYPE[ \t]+(\S+)[ \t]+counter[ \t]*$", re.MULTILINE)
_NUMBER: Final = re.compile(r"NaN|[+-]?Inf|[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_PARTS: Final = {
    "counter": ("",),
    "gauge": ("",),
    "untyped": ("",),
    "summary": ("", "_sum", "_count"),
    "histogram": ("_bucket", "_sum", "_count"),
}
_BOUND: Final = {"histogram": ("le", "_bucket"), "summary": ("quantile", "")}
"""The label that a type reserves, and the ending of the series that have it."""


class PageError(ValueError):
    """A page that cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a page: a name, labels and a value."""

    name: str
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All series of one metric, with its type and help."""

    name: str
    type: str
    help: str
    series: tuple[Series, ...]

    def names(self) -> set[str]:
        """Returns all names that its series may have, whether or not there is such a series."""
        return {self.name, *(f"{self.name}{part}" for part in _PARTS[self.type])}


def read_page(text: str, *, trusted: bool = False) -> list[Family]:
    """Parses a page. Raises PageError when it is malformed, or has a line that is not accepted.

    The length of lines is not limited in a `trusted` page, one that this process made.
    """
    for number, line in enumerate(() if trusted else text.split("\n"), 1):
        if len(line) > LONGEST_LINE or line.count('"') > MOST_QUOTES:
            raise PageError(f"line {number} is too long: {len(line)} characters")
    plain = {name for name in _PLAIN_COUNTER.findall(text) if not name.endswith("_total")}
    try:
        return [_parse_family(metric, plain) for metric in text_string_to_metric_families(text)]
    except PageError:
        raise
    except Exception as error:  # noqa: BLE001 - a third-party parser on untrusted input
        raise PageError(f"no metrics: {str(error)[:200] or type(error).__name__}") from None


def relabel(families: Iterable[Family], labels: Mapping[str, str]) -> list[Family]:
    """Returns the families with these labels set on every series."""

    def change(series: Series) -> Series:
        changed = {**dict(series.labels), **labels}
        return replace(series, labels=tuple(sorted(changed.items())))

    return [replace(each, series=tuple(map(change, each.series))) for each in families]


def select_project(families: Iterable[Family], project_id: str) -> list[Family]:
    """Returns the families without the series that name another project."""
    return [
        replace(
            each,
            series=tuple(
                series
                for series in each.series
                if dict(series.labels).get("project", project_id) == project_id
            ),
        )
        for each in families
    ]


def write_page(own: Sequence[Family], others: Iterable[Sequence[Family]] = ()) -> str:
    """Returns one page of several.

    The type of a family is that in `own`, else the one that most other pages give it. A series that
    is on the page already, or whose family has another type, is left out.
    """
    pages = [page for page in others if page]
    heads: dict[str, Family] = {}
    claimed: dict[str, str] = {}
    for family in [*own, *_most_told(pages)]:
        names = family.names()
        if family.name not in heads and not any(name in claimed for name in names):
            heads[family.name] = family
            claimed |= dict.fromkeys(names, family.name)
    lines: dict[str, dict[tuple[str, Labels], str]] = {name: {} for name in heads}
    for page in (own, *pages):
        for family in page:
            head = heads.get(family.name)
            if head is None or head.type != family.type:
                continue
            for series in family.series:
                lines[family.name].setdefault((series.name, series.labels), _line(series))
    return "".join(
        f"# HELP {name} {_help(head.help)}\n# TYPE {name} {head.type}\n"
        + "".join(lines[name].values())
        for name, head in heads.items()
        if lines[name]
    )


def _most_told(pages: Sequence[Sequence[Family]]) -> list[Family]:
    """Returns the families by name and type, those that most pages have first."""
    told = Counter((family.name, family.type) for page in pages for family in page)
    by_key = {(each.name, each.type): each for page in reversed(pages) for each in page}
    return sorted(by_key.values(), key=lambda each: (-told[each.name, each.type], each.name))


def _parse_family(metric: Metric, plain: set[str]) -> Family:
    name = metric.name
    kind = metric.type if metric.type in _PARTS else "untyped"
    strip = ""
    if kind == "counter":
        # The parser takes `_total` off the family, and gives it to series that have none.
        if name in plain:
            strip = "_total"
        else:
            name = f"{name}_total"
    if not NAME.fullmatch(name):
        raise PageError(f"{name[:100]!r} is not the name of a metric")
    allowed = {f"{name}{part}" for part in _PARTS[kind]}
    series = []
    for sample in metric.samples:
        one = Series(
            name=sample.name.removesuffix(strip) if strip else sample.name,
            labels=tuple(sorted(sample.labels.items())),
            value=_number(sample.value),
        )
        if one.name not in allowed:
            raise PageError(f"{one.name[:100]!r} is not of the metric {name[:100]!r}")
        series.append(_check_series(one, name, kind))
    return Family(name=name, type=kind, help=metric.documentation, series=tuple(series))


def _check_series(series: Series, family: str, kind: str) -> Series:
    for label, _ in series.labels:
        if not LABEL.fullmatch(label):
            raise PageError(f"{label[:100]!r} is not the name of a label")
    if kind not in _BOUND:
        return series
    label, part = _BOUND[kind]
    labels = dict(series.labels)
    if (series.name == f"{family}{part}") != (label in labels):
        raise PageError(f"{series.name[:100]!r} has the wrong labels for a {kind}")
    if label in labels and not _NUMBER.fullmatch(labels[label]):
        raise PageError(f"{labels[label][:100]!r} is no bound of a {kind}")
    return series


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type] # whatever it is
    except OverflowError:
        raise PageError("a number is too large") from None


def _line(series: Series) -> str:
    labels = ",".join(f'{name}="{_escape(value)}"' for name, value in series.labels)
    name = f"{series.name}{{{labels}}}" if labels else series.name
    return f"{name} {_format_number(series.value)}\n"


def _format_number(value: float) -> str:
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call] # says nothing of its types
    return text


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _help(text: str) -> str:
    return text[:LONGEST_HELP].replace("\\", r"\\").replace("\n", r"\n").replace("\r", " ")
