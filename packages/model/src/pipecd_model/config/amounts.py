# SPDX-License-Identifier: Apache-2.0
"""Values that count something: percentages, and replicas that may be given as one."""

from __future__ import annotations

import re
from typing import Any, Self

import msgspec

from pipecd_model.config.values import BadValueError

_WHOLE = re.compile(r"[-+]?\d{1,18}", re.ASCII)


class Percentage(int):
    """A whole number of hundredths, written as `10` or `10%`."""

    @classmethod
    def from_config(cls, value: Any) -> Self:
        if isinstance(value, int) and not isinstance(value, bool):
            return cls(value)
        if isinstance(value, str) and _WHOLE.fullmatch(text := value.removesuffix("%")):
            return cls(text)
        if value is None:
            raise BadValueError("the value is empty", hint="remove the key or give e.g. 10%")
        raise BadValueError(
            f"not a percentage: {value!r}", hint="a whole number, with or without %"
        )


class Share(float):
    """A part of hundred, written as `30`, `12.5` or `30%`."""

    @classmethod
    def from_config(cls, value: Any) -> Self:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return cls(value)
        try:
            return cls(Percentage.from_config(value))
        except BadValueError as error:
            raise BadValueError(f"not a share: {value!r}", hint="0 to 100, e.g. 30") from error

    def __str__(self) -> str:
        return f"{float(self):g}"


class Replicas(msgspec.Struct, frozen=True, kw_only=True):
    """How many, written as `2`, or as `10%` of what is there; zero leaves it to the stage."""

    number: int = 0
    is_percentage: bool = False

    @classmethod
    def from_config(cls, value: Any) -> Self:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return cls(number=int(value))
        if isinstance(value, str) and _WHOLE.fullmatch(text := value.removesuffix("%")):
            return cls(number=int(text), is_percentage=value.endswith("%"))
        if value is None:
            raise BadValueError("the value is empty", hint="remove the key or give e.g. 1 or 10%")
        raise BadValueError(
            f"not a number of replicas: {value!r}", hint="a whole number, or a percentage: 10%"
        )

    def resolve(self, total: int, *, default: int) -> int:
        """Count them when `total` are there; a part of one counts as one."""
        if not self.number:
            return default
        return -(-self.number * total // 100) if self.is_percentage else self.number

    def __bool__(self) -> bool:
        return bool(self.number)

    def __str__(self) -> str:
        return f"{self.number}%" if self.is_percentage else str(self.number)
