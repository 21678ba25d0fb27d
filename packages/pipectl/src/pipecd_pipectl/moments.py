# SPDX-License-Identifier: Apache-2.0
"""Moments as people type them: `24h` for a day ago, `2026-11-16`, `2026-11-16T09:30`."""

import time
from datetime import datetime
from typing import Any

import click

from pipecd_model.config.values import Duration


class MomentType(click.ParamType[int]):
    """A moment, in Unix seconds."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return int(time.time() - Duration.parse(value).total_seconds())
        except ValueError:
            pass
        try:
            # Without a zone it is the time of this machine.
            return int(datetime.fromisoformat(value).timestamp())
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value[:80]!r} is no moment (24h for a day ago, 2026-11-16, 2026-11-16T09:30)",
                param,
                ctx,
            )


MOMENT = MomentType()
