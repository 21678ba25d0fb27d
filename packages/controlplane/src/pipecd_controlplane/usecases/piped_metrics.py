# SPDX-License-Identifier: Apache-2.0
"""The Prometheus metrics that a piped reports: parsed, limited in size, labelled with its id.

A piped is trusted with its own numbers only: the labels for piped and project are set here, not
taken from the report. Reports are parsed in a thread, one at a time: a large one does not block the
event loop.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from pipecd_controlplane.usecases import exposition
from pipecd_controlplane.usecases.exposition import Family, PageError
from pipecd_model.errors import ConfigError

LARGEST_REPORT: Final = 512 * 1024
"""Bytes; a Go agent reports some twenty thousand."""

LARGEST_PROJECT: Final = 8 * 1024 * 1024
"""Bytes of all reports of one project that are shown, so that they cannot slow other projects."""

MOST_SERIES: Final = 10_000
MOST_FAMILIES: Final = 1_000
LONGEST_NAME: Final = 200
LONGEST_LABEL: Final = 1_000
"""Characters of the name of a metric or a label, and of a label's value."""

COMPONENT: Final = "piped"


class ReportCheck:
    """Validates the metrics that pipeds report; the errors are returned to the piped."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._checking: set[str] = set()

    def check_size(self, data: bytes) -> None:
        """Raises ConfigError for a report that is too large to be kept."""
        try:
            _check_size(data)
        except PageError as error:
            raise _unusable(error) from None

    async def check(self, piped_id: str, data: bytes) -> None:
        """Raises ConfigError for a report that cannot be shown.

        While a report of this piped is being checked, further ones return at once, unchecked.
        """
        if piped_id in self._checking:
            return
        self._checking.add(piped_id)
        try:
            async with self._turn:
                await asyncio.to_thread(read_report, data)
        except PageError as error:
            raise _unusable(error) from None
        finally:
            self._checking.discard(piped_id)


def select_fitting(reports: Mapping[str, bytes], most: int = LARGEST_PROJECT) -> dict[str, bytes]:
    """Returns those reports of one project, by piped, that fit; the largest are left out first."""
    fitting: dict[str, bytes] = {}
    left = most
    for piped_id, data in sorted(reports.items(), key=lambda each: (len(each[1]), each[0])):
        left -= len(data)
        if left < 0:
            break
        fitting[piped_id] = data
    return fitting


def read_report(data: bytes) -> list[Family]:
    """Returns the families of a report. Raises PageError."""
    _check_size(data)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PageError(f"it is not UTF-8 at byte {error.start}") from None
    if text.count("\n") > 4 * MOST_SERIES:
        raise PageError(f"it has more than {4 * MOST_SERIES} lines")
    families = exposition.read_page(text)
    if len(families) > MOST_FAMILIES:
        raise PageError(f"it has {len(families)} metrics; at most {MOST_FAMILIES} are taken")
    series = sum(len(family.series) for family in families)
    if series > MOST_SERIES:
        raise PageError(f"it has {series} series; at most {MOST_SERIES} are taken")
    for family in families:
        _check_lengths(family)
    return families


def label_as_piped(families: list[Family], project_id: str, piped_id: str) -> list[Family]:
    """Returns the families with the labels of this piped and project, whatever they had."""
    labels = {"pipecd_component": COMPONENT, "piped": piped_id, "project": project_id}
    return exposition.relabel(families, labels)


def _check_size(data: bytes) -> None:
    if len(data) > LARGEST_REPORT:
        raise PageError(f"it has {len(data)} bytes; at most {LARGEST_REPORT} are taken")


def _check_lengths(family: Family) -> None:
    if len(family.name) > LONGEST_NAME:
        raise PageError(f"the name {family.name[:50]!r}… has {len(family.name)} characters")
    for series in family.series:
        for name, value in series.labels:
            if len(name) > LONGEST_NAME or len(value) > LONGEST_LABEL:
                raise PageError(f"a label of {family.name!r} is too long: {name[:50]!r}")


def _unusable(error: PageError) -> ConfigError:
    return ConfigError(
        f"the metrics in the report cannot be used: {error}",
        hint="the report counts as a sign of life all the same",
    )
