# SPDX-License-Identifier: Apache-2.0
"""Applications by any property, with counts for each value: a pure function over the index."""

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain
from typing import Final

from pipecd_controlplane.usecases.application_index import IndexedApplication
from pipecd_model.errors import ConfigError
from pipecd_wire.model import application_pb2
from pipecd_wire.pipecd.api import overview_pb2 as pb

Request = pb.SearchApplicationsRequest
Key = tuple[int, str, str]

DEFAULT_PAGE: Final = 50
MOST_PAGE: Final = 200
MOST_VALUES: Final = 100
MOST_LABEL_KEYS: Final = 50
LONGEST_TEXT: Final = 200
PROPERTIES: Final = ("status", "sync", "kind", "piped")
URGENCY: Final = {pb.WAITING: 1, pb.IN_PROGRESS: 2}


@dataclass(slots=True, kw_only=True)
class SearchResult:
    """The applications of a page, and what is known of all."""

    page: list[IndexedApplication]
    total: int
    cursor: str
    facets: list[pb.Facet] = field(default_factory=list)


Test = Callable[[IndexedApplication], bool]


def search(
    entries: Iterable[IndexedApplication], request: Request, piped_names: dict[str, str]
) -> SearchResult:
    """Returns a page of the wanted applications, with counts. Raises ConfigError."""
    tests = _make_tests(request)
    find_key = _make_key(request.order)
    after = _parse_cursor(request.cursor)
    wanted: list[IndexedApplication] = []
    almost: dict[str, list[IndexedApplication]] = {name: [] for name, _ in tests}
    for entry in entries:
        failed = ""
        for name, test in tests:
            if not test(entry):
                if failed:
                    break
                failed = name
        else:
            (almost[failed] if failed else wanted).append(entry)
    size = min(request.page_size or DEFAULT_PAGE, MOST_PAGE)
    rest = [each for each in wanted if find_key(each) > after] if after else wanted
    page = nsmallest(size, rest, key=find_key)
    facets = []
    if not request.without_facets:
        facets = list(_describe_facets(_count(wanted, almost), request, piped_names))
    return SearchResult(
        page=page,
        total=len(wanted),
        cursor=_format_cursor(find_key(page[-1])) if len(rest) > size else "",
        facets=facets,
    )


def _make_tests(request: Request) -> list[tuple[str, Test]]:
    """Returns a test for each property that the request names, by the facet that it belongs to."""
    if len(request.text) > LONGEST_TEXT:
        raise ConfigError(
            f"invalid request: text: {len(request.text)} characters, at most {LONGEST_TEXT}"
        )
    tests: list[tuple[str, Test]] = []
    if words := request.text.casefold().split():
        exact = request.text.strip()
        tests.append(
            ("text", lambda each: each.id == exact or all(w in each.folded for w in words))
        )
    if request.activity != Request.ANY:
        disabled = request.activity == Request.DISABLED
        tests.append(("activity", lambda each: each.disabled == disabled))
    if statuses := set(request.statuses):
        tests.append(("status", lambda each: each.status in statuses))
    if syncs := set(request.sync_statuses):
        tests.append(("sync", lambda each: each.sync_status in syncs))
    if kinds := set(request.kinds):
        tests.append(("kind", lambda each: each.kind in kinds))
    if pipeds := set(request.piped_ids):
        tests.append(("piped", lambda each: each.piped_id in pipeds))
    tests += [_make_label_test(choice.key, set(choice.values)) for choice in request.labels]
    return tests


def _make_label_test(key: str, values: set[str]) -> tuple[str, Test]:
    return f"label {key}", lambda each: each.labels.get(key) in values


def _make_key(order: Request.Order.ValueType) -> Callable[[IndexedApplication], Key]:
    if order == Request.CHANGED:
        return lambda each: (-each.changed_at, each.folded, each.id)
    if order == Request.URGENCY:
        return lambda each: (
            _rank_urgency(each),
            each.folded,
            each.id,
        )
    return lambda each: (0, each.folded, each.id)


def _rank_urgency(each: IndexedApplication) -> int:
    if each.is_broken:
        return 0
    differs = each.sync_status == application_pb2.OUT_OF_SYNC
    return URGENCY.get(each.status, 3 if differs else 4)


def _format_cursor(key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def _parse_cursor(cursor: str) -> Key | None:
    if not cursor:
        return None
    try:
        number, folded, entry_id = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        return int(number), str(folded), str(entry_id)
    except (ValueError, TypeError):
        raise ConfigError("invalid request: cursor: not one of a page") from None


def _count(
    wanted: Iterable[IndexedApplication], almost: dict[str, list[IndexedApplication]]
) -> dict[str, dict[str, int]]:
    """Returns how many there are for each value of each property.

    One that fails the test of one property alone counts for that property.
    """
    counted = Counter(chain.from_iterable(each.values for each in wanted))
    for name, entries in almost.items():
        values = chain.from_iterable(each.values for each in entries)
        counted.update(value for value in values if value[0] == name)
    found: dict[str, dict[str, int]] = {name: {} for name in PROPERTIES}
    for (name, value), count in counted.items():
        found.setdefault(name, {})[value] = count
    return found


def _describe_facets(
    counted: dict[str, dict[str, int]], request: Request, piped_names: dict[str, str]
) -> Iterator[pb.Facet]:
    chosen = {f"label {choice.key}": set(choice.values) for choice in request.labels}
    chosen |= {"kind": set(request.kinds), "piped": set(request.piped_ids)}
    labels = [name for name in counted if name not in PROPERTIES]
    labels.sort(key=lambda name: (name not in chosen, -sum(counted[name].values()), name))
    for name in [*PROPERTIES, *labels[:MOST_LABEL_KEYS]]:
        found = counted[name]
        found |= {value: 0 for value in chosen.get(name, ()) if value not in found}
        listed = sorted(found, key=lambda value: (-found[value], value))
        kept = [
            value
            for place, value in enumerate(listed)
            if place < MOST_VALUES or value in chosen.get(name, ())
        ]
        property_name, _, key = name.partition(" ")
        yield pb.Facet(
            property=property_name,
            key=key,
            values=[
                pb.Facet.Value(
                    value=value,
                    name=piped_names.get(value, value) if name == "piped" else value,
                    count=found[value],
                )
                for value in kept
            ],
            left_out=len(listed) - len(kept),
        )
