# SPDX-License-Identifier: Apache-2.0
"""Functions that calculate: whole numbers of 64 bits, and those with a fraction."""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import reduce
from typing import Final

from pipecd_model.config.values import format_duration
from pipecd_model.templates.functions.signature import Function, declare
from pipecd_model.templates.gofmt import to_text
from pipecd_model.templates.kinds import Int64, Ints, wrap64
from pipecd_model.templates.limits import ITEM
from pipecd_model.templates.literals import BadLiteralError, parse_number

_SMALLEST: Final = -(1 << 63)
_LARGEST: Final = (1 << 63) - 1
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,400}")
_OCTAL: Final = re.compile(r"[+-]?[0-7]{1,400}")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+(?:_[0-9]+)*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NAMED: Final = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)
_ZERO_FRACTION: Final = re.compile(r"([^.]*)\.0+")


def to_int64(value: object) -> int:
    """Return a value as a whole number; what is none counts as zero."""
    if isinstance(value, int):
        return wrap64(value)
    if isinstance(value, float):
        return _truncate(value)
    return _parse_whole(value) if isinstance(value, str) else 0


def _truncate(value: float) -> int:
    if not math.isfinite(value) or not _SMALLEST <= value <= _LARGEST:
        return _SMALLEST  # what the processor gives for a number that does not fit
    whole = int(value)
    return whole if whole <= _LARGEST else _SMALLEST


def _parse_whole(text: str) -> int:
    if fraction := _ZERO_FRACTION.fullmatch(text):
        text = fraction[1] or text
    try:
        number = parse_number(text)
    except BadLiteralError:
        return 0
    return number.value if isinstance(number.value, int) else 0


def to_float(value: object) -> float:
    """Return a value as a number; what is none counts as zero."""
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str) or len(value) > _LONGEST:
        return 0.0
    if _FLOAT.fullmatch(value):
        number = float(value)
        return number if math.isfinite(number) else 0.0
    if _NAMED.fullmatch(value):
        return float(value)
    try:
        return float(parse_number(value).value) if "p" in value.lower() else 0.0
    except BadLiteralError:
        return 0.0


_LONGEST: Final = 400


def _atoi(text: str) -> int:
    if not _DECIMAL.fullmatch(text):
        return 0
    return max(_SMALLEST, min(_LARGEST, int(text)))


def _to_decimal(value: object) -> Int64:
    text = to_text(value)
    if not _OCTAL.fullmatch(text):
        return Int64(0)
    return Int64(max(_SMALLEST, min(_LARGEST, int(text, 8))))


def _add(*values: object) -> Int64:
    return wrap64(sum(map(to_int64, values)))


def _mul(*values: object) -> Int64:
    product = 1
    for each in values:
        product = wrap64(product * to_int64(each))
    return Int64(product)


def _quotient(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _div(left: object, right: object) -> Int64:
    return wrap64(_quotient(to_int64(left), to_int64(right)))


def _mod(left: object, right: object) -> Int64:
    dividend, divisor = to_int64(left), to_int64(right)
    return wrap64(dividend - divisor * _quotient(dividend, divisor))


def _max(*values: object) -> Int64:
    return Int64(max(map(to_int64, values)))


def _min(*values: object) -> Int64:
    return Int64(min(map(to_int64, values)))


def _maxf(*values: object) -> float:
    return reduce(
        lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else max(a, b),
        map(to_float, values),
    )


def _minf(*values: object) -> float:
    return reduce(
        lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else min(a, b),
        map(to_float, values),
    )


_CONTEXT: Final = decimal.Context(prec=2500, Emin=-999_999, Emax=999_999)
_QUOTIENT: Final = decimal.Decimal(1).scaleb(-16)


def _to_decimals(values: tuple[object, ...]) -> list[decimal.Decimal]:
    floats = [to_float(each) for each in values]
    if not all(map(math.isfinite, floats)):
        raise ValueError
    return [decimal.Decimal(repr(each)) for each in floats]


def _calculate(
    rule: Callable[[decimal.Decimal, decimal.Decimal], decimal.Decimal],
) -> Callable[..., float]:
    def calculate(*values: object) -> float:
        return float(reduce(rule, _to_decimals(values))) + 0.0  # there is no zero below zero

    return calculate


def _divide(left: decimal.Decimal, right: decimal.Decimal) -> decimal.Decimal:
    if not right:
        raise ZeroDivisionError
    quotient = _CONTEXT.divide(left, right)
    return quotient.quantize(_QUOTIENT, rounding=decimal.ROUND_HALF_UP, context=_CONTEXT)


def _addf(*values: object) -> float:
    return _sum(0.0, *values)


_sum = _calculate(_CONTEXT.add)


def _round(value: object, places: int, *half: float) -> float:
    """Round by what the number has become as a binary fraction, as Go does."""
    number = to_float(value)
    power = _power(places)
    digits = power * number
    if math.isfinite(digits):
        up = math.modf(digits)[0] >= (half[0] if half else 0.5)
        digits = math.copysign(math.ceil(digits) if up else math.floor(digits), digits)
    return digits / power if power else math.nan


def _power(places: int) -> float:
    try:
        return math.pow(10, places)
    except OverflowError:
        return math.inf


def _whole(rounded: Callable[[float], int], value: object) -> float:
    number = to_float(value)
    return math.copysign(rounded(number), number) if math.isfinite(number) else number


def _duration(value: object) -> str:
    seconds = value if isinstance(value, Int64) else 0
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        seconds = max(_SMALLEST, min(_LARGEST, int(value)))
    nanoseconds = wrap64(seconds * 1_000_000_000)
    return format_duration(timedelta(microseconds=nanoseconds // 1000))


def _count_to(count: int) -> Ints:
    return _count_by(0, count, -1 if count < 0 else 1)


def _count_by(start: int, stop: int, step: int) -> Ints:
    if step == 0 or (step > 0) != (stop > start):
        return Ints()
    return Ints(range(start, stop, step))


def _seq(*numbers: int) -> str:
    if not 1 <= len(numbers) <= 3:
        return ""
    start, end = (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[-1])
    step = numbers[1] if len(numbers) == 3 else (-1 if end < start else 1)
    if len(numbers) == 3 and end < start and step > 0:
        return ""
    return " ".join(map(str, _count_by(start, end + (-1 if end < start else 1), step)))


def _grow_until(count: int) -> int:
    return abs(count) * ITEM


def _grow_until_step(start: int, stop: int, step: int) -> int:
    return abs(stop - start) // max(abs(step), 1) * ITEM


def _grow_seq(*numbers: int) -> int:
    if len(numbers) == 3:
        return (abs(numbers[2] - numbers[0]) // max(abs(numbers[1]), 1) + 1) * 2 * ITEM
    return (abs(numbers[-1] - numbers[0]) + abs(numbers[0]) + 1) * 2 * ITEM if numbers else 0


NUMBERS: Final[Mapping[str, Function]] = {
    "add": declare("a*", _add),
    "add1": declare("a", lambda value: wrap64(to_int64(value) + 1)),
    "add1f": declare("a", lambda value: _addf(value, 1.0)),
    "addf": declare("a*", _addf),
    "atoi": declare("s", _atoi),
    "biggest": declare("aa*", _max),
    "ceil": declare("a", lambda value: _whole(math.ceil, value)),
    "div": declare("aa", _div),
    "divf": declare("aa*", _calculate(_divide)),
    "duration": declare("a", _duration),
    "float64": declare("a", to_float),
    "floor": declare("a", lambda value: _whole(math.floor, value)),
    "int": declare("a", lambda value: int(to_int64(value))),
    "int64": declare("a", lambda value: Int64(to_int64(value))),
    "max": declare("aa*", _max),
    "maxf": declare("aa*", _maxf),
    "min": declare("aa*", _min),
    "minf": declare("aa*", _minf),
    "mod": declare("aa", _mod),
    "mul": declare("aa*", _mul),
    "mulf": declare("aa*", _calculate(_CONTEXT.multiply)),
    "round": declare("aif*", _round),
    "seq": declare("i*", _seq, cost=_grow_seq),
    "sub": declare("aa", lambda left, right: wrap64(to_int64(left) - to_int64(right))),
    "subf": declare("aa*", _calculate(_CONTEXT.subtract)),
    "toDecimal": declare("a", _to_decimal),
    "until": declare("i", _count_to, cost=_grow_until),
    "untilStep": declare("iii", _count_by, cost=_grow_until_step),
}
