# SPDX-License-Identifier: Apache-2.0
"""Kinds of option values that several commands take."""

from typing import Any

import click

from pipecd_model.config.values import Duration, format_bad_value
from pipecd_runtime.command_line import DurationParam


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


DURATION = DurationParam(Duration.parse, format_error=format_bad_value)
PAIR = PairType()
