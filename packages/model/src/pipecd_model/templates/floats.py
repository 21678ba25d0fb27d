# SPDX-License-Identifier: Apache-2.0
"""Numbers with a fraction as texts, as Go writes them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

_PLAIN_BELOW: Final = 6
"""The exponent from which the shortest form has one."""


def write(value: float, verb: str = "g", precision: int = -1) -> str:
    """Return a number in the form of a verb of printf; -1 takes as few digits as are needed."""
    if not math.isfinite(value):
        return _special(value)
    upper = verb in "EGX"
    form = verb.lower()
    if form == "b":
        return _binary(value)
    if form == "x":
        text = _hexadecimal(value, precision)
    elif form == "f":
        text = _format_fixed(value, precision)
    elif form == "e":
        text = _exponent(value, precision)
    else:
        text = _shorter(value, precision)
    return text.upper() if upper else text


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def _digits(value: float) -> tuple[str, int]:
    """Return the fewest digits that mean this number, and the power of ten of the first."""
    _, digits, exponent = Decimal(repr(abs(value))).as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    if not text:
        return "0", 0
    return text, len(digits) - 1 + int(exponent)


def _sign(value: float) -> str:
    return "-" if math.copysign(1, value) < 0 else ""


def _format_fixed(value: float, precision: int) -> str:
    if precision >= 0:
        return f"{value:.{precision}f}"
    return f"{Decimal(repr(value)):f}".removesuffix(".0")


def _exponent(value: float, precision: int) -> str:
    if precision >= 0:
        return f"{value:.{precision}e}"
    digits, power = _digits(value)
    point = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{_sign(value)}{digits[0]}{point}e{power:+03d}"


def _shorter(value: float, precision: int) -> str:
    if precision >= 0:
        return f"{value:.{precision or 1}g}"
    _, power = _digits(value)
    is_plain = -4 <= power < _PLAIN_BELOW
    return _format_fixed(value, -1) if is_plain else _exponent(value, -1)


def _binary(value: float) -> str:
    mantissa, exponent = math.frexp(value)
    whole = int(abs(mantissa) * (1 << 53))
    exponent -= 53
    if whole == 0:
        exponent = -1074
    elif exponent < -1074:
        whole >>= -1074 - exponent
        exponent = -1074
    return f"{_sign(value)}{whole}p{exponent:+d}"


def _hexadecimal(value: float, precision: int) -> str:
    mantissa, exponent = math.frexp(abs(value))
    whole = int(mantissa * (1 << 53))  # 1 and 52 bits
    exponent -= 1
    if whole == 0:
        exponent = 0
    if 0 <= precision < 13:
        drop = 4 * (13 - precision)
        rest = whole & ((1 << drop) - 1)
        whole >>= drop
        half = 1 << (drop - 1)
        whole += rest > half or (rest == half and whole & 1 == 1)
        if whole >> (4 * precision) > 1:
            whole >>= 1
            exponent += 1
        digits = f"{whole:x}".zfill(precision + 1)
    else:
        digits = f"{whole:x}".zfill(14)
        digits = (
            digits.ljust(precision + 1, "0")
            if precision >= 0
            else digits[0] + digits[1:].rstrip("0")
        )
    point = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{_sign(value)}0x{digits[0]}{point}p{exponent:+03d}"
