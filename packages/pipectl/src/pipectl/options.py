# SPDX-License-Identifier: Apache-2.0
"""Kinds of option values that several commands take."""

from datetime import timedelta
from typing import Any

import click

from pipecd_model.config.values import BadValueError, Duration


class DurationType(click.ParamType[timedelta]):
    """A Go duration such as `90s` or `5m`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return Duration.parse(value)
        except BadValueError as wrong:
            self.fail(f"{wrong} ({wrong.hint})", param, ctx)


class PairType(click.ParamType[tuple[str, str]]):
    """`key=value` or `key:value`."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        separator = "=" if "=" in value else ":"
        key, found, rest = value.partition(separator)
        if not found or not key:
            self.fail(f"{value!r} is not key=value", param, ctx)
        return key, rest


DURATION = DurationType()
PAIR = PairType()
