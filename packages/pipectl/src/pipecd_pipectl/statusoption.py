# SPDX-License-Identifier: Apache-2.0
"""The kind of an option's value that is a list of statuses of deployments."""

from collections.abc import Iterable
from typing import Any

import click

from pipecd_pipectl.statuses import PREFIX, STATUSES


class StatusesType(click.ParamType[tuple[str, ...]]):
    """One status of a deployment, or several with commas between; upstream's names too."""

    name = "status"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(each.strip().upper().removeprefix(PREFIX) for each in value.split(","))
        if unknown := [name for name in names if name not in STATUSES]:
            self.fail(f"{unknown[0]!r} is none of {', '.join(STATUSES)}", param, ctx)
        return names


STATUS = StatusesType()


def join_statuses(given: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the statuses of an option that may be repeated, each once."""
    return tuple(dict.fromkeys(name for names in given for name in names))
