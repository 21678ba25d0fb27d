# SPDX-License-Identifier: Apache-2.0
"""Values as texts, as Go writes them: `print`, the verbs of `printf`, and what an action writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pipecd_model.templates import floats, quoting
from pipecd_model.templates.faults import FunctionError
from pipecd_model.templates.kinds import (
    MISSING,
    NOT_PLAIN,
    Byte,
    StrangeValueError,
    sort_keys,
    to_bytes,
    type_name,
    unite,
)
from pipecd_model.templates.limits import Meter


@dataclass(frozen=True, slots=True)
class Style:
    """The flags, the width and the precision of a verb."""

    plus: bool = False
    minus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    width: int | None = None
    precision: int | None = None
    as_source: bool = False
    """`%#v`: as it would stand in a program."""

    def pad(self, text: str) -> str:
        """Fill a text up to the width."""
        missing = (self.width or 0) - len(text)
        if missing <= 0:
            return text
        if self.minus:
            return text + " " * missing
        return ("0" if self.zero else " ") * missing + text


PLAIN: Final = Style()
Many = dict[str, object] | list[object] | tuple[object, ...]


def to_output(meter: Meter, value: object) -> str:
    """Return what an action writes for a value."""
    if value is None or value is MISSING:
        return "<no value>"
    if isinstance(value, list | dict | tuple):
        meter.admit([value])
    return unite(to_text(value))


def to_text(value: object) -> str:
    """Return a value as `%v` writes it."""
    if isinstance(value, str):
        return value
    return write(value, "v", PLAIN)


def write(value: object, verb: str, style: Style) -> str:
    """Return a value in the form of a verb."""
    if value is None or value is MISSING:
        return style.pad("<nil>") if verb == "v" else bad_verb(verb, value, style)
    if verb == "T":
        return _write_text(type_name(value), "s", style)
    if isinstance(value, bool):
        return style.pad(str(value).lower()) if verb in "tv" else bad_verb(verb, value, style)
    if isinstance(value, str):
        return _write_text(value, verb, style)
    if isinstance(value, int):
        return _write_int(value, verb, style)
    if isinstance(value, float):
        return _write_float(value, verb, style)
    if not isinstance(value, dict | list | tuple):
        raise StrangeValueError(NOT_PLAIN)
    if verb == "p":
        raise FunctionError("a value has no address here")
    return _write_many(value, verb, style)


def bad_verb(verb: str, value: object, style: Style) -> str:
    """Return what stands for a value that a verb is not for."""
    if value is None or value is MISSING:
        return f"%!{verb}(<nil>)"
    return f"%!{verb}({type_name(value)}={write(value, 'v', style)})"


def _write_many(value: Many, verb: str, style: Style) -> str:
    source = style.as_source
    if isinstance(value, dict):
        items = [
            f"{_inner(key, verb, style)}:{_inner(value[key], verb, style)}"
            for key in sort_keys(value)
        ]
        return f"{type_name(value)}{{{', '.join(items)}}}" if source else f"map[{' '.join(items)}]"
    parts = [_inner(item, verb, style) for item in value]
    return f"{type_name(value)}{{{', '.join(parts)}}}" if source else f"[{' '.join(parts)}]"


def _inner(value: object, verb: str, style: Style) -> str:
    if value is None:
        return "interface {}(nil)" if style.as_source else "<nil>"
    return write(value, verb, style)


def _write_text(value: str, verb: str, style: Style) -> str:
    if verb == "v":
        verb = "q" if style.as_source else "s"
    if verb in "sq":
        short = value if style.precision is None else value[: style.precision]
        return style.pad(_quote(short, style) if verb == "q" else short)
    if verb in "xX":
        return style.pad(_hex(value, style, upper=verb == "X"))
    return bad_verb(verb, value, style)


def _quote(value: str, style: Style) -> str:
    if style.sharp and quoting.can_backquote(value):
        return f"`{value}`"
    return quoting.quote(value, ascii_only=style.plus)


def _hex(value: str, style: Style, *, upper: bool) -> str:
    content = to_bytes(value)
    if style.precision is not None:
        content = content[: style.precision]
    prefix = ("0X" if upper else "0x") if style.sharp and content else ""
    digits = content.hex(" ") if style.space else content.hex()
    digits = digits.upper() if upper else digits
    return prefix + (digits.replace(" ", f" {prefix}") if style.space else digits)


_BASES: Final = {"d": "d", "v": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}


def _write_int(value: int, verb: str, style: Style) -> str:
    if verb == "v" and style.as_source and isinstance(value, Byte):
        verb, style = "x", replace(style, sharp=True)
    if verb in _BASES:
        return _digits(value, verb, style)
    valid = 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000
    character = chr(value) if valid else "\ufffd"
    if verb == "c":
        return style.pad(character)
    if verb == "q":
        return style.pad(quoting.quote_character(value, ascii_only=style.plus))
    if verb == "U":
        code = f"U+{value & ((1 << 64) - 1):0{max(4, style.precision or 0)}X}"
        shown = f" '{character}'" if style.sharp and valid and character.isprintable() else ""
        return replace(style, zero=False).pad(code + shown)
    return bad_verb(verb, value, style)


def _digits(value: int, verb: str, style: Style) -> str:
    sign = "-" if value < 0 else "+" if style.plus else " " if style.space else ""
    least = style.precision
    if least == 0 and value == 0:
        return replace(style, zero=False).pad("")
    if least is None and style.zero and not style.minus and style.width is not None:
        least = style.width - len(sign)
    digits = f"{abs(value):{_BASES[verb]}}".zfill(least or 0)
    if style.sharp and verb in "bxX":
        digits = {"b": "0b", "x": "0x", "X": "0X"}[verb] + digits
    elif style.sharp and verb in "oO" and digits[0] != "0":
        digits = f"0{digits}"
    if verb == "O":
        digits = f"0o{digits}"
    return replace(style, zero=False).pad(sign + digits)


_PRECISIONS: Final = {"v": -1, "b": -1, "g": -1, "G": -1, "x": -1, "X": -1}


def _write_float(value: float, verb: str, style: Style) -> str:
    if verb not in "vbgGxXfFeE":
        return bad_verb(verb, value, style)
    precision = _PRECISIONS.get(verb, 6) if style.precision is None else style.precision
    form = {"v": "g", "F": "f"}.get(verb, verb)
    text = floats.write(value, form, precision)
    if text[0] not in "+-":
        text = f"+{text}"
    if style.space and text[0] == "+" and not style.plus:
        text = f" {text[1:]}"
    if text[1:] in {"Inf", "NaN"}:
        is_bare = text[1:] == "NaN" and not style.plus and not style.space
        return replace(style, zero=False).pad(text[1:] if is_bare else text)
    if style.sharp and form != "b":
        text = _keep_zeros(text, form, precision)
    if style.plus or text[0] != "+":
        if style.zero and not style.minus and style.width is not None and style.width > len(text):
            return text[0] + text[1:].zfill(style.width - 1)
        return style.pad(text)
    return style.pad(text[1:])


def _keep_zeros(text: str, form: str, precision: int) -> str:
    """Return a number with its point, and for %g with all digits of the precision."""
    mark = "p" if form in "xX" else "e"
    number, found, exponent = text.partition(mark if form.islower() else mark.upper())
    if form in "gGx":
        wanted = 6 if precision < 0 else precision
        digits = number[1:].replace(".", "").lstrip("0") or "0"
        missing = wanted - len(digits)  # the x of 0x counts as one
        number = number if "." in number else f"{number}."
        number += "0" * max(missing, 0)
    elif "." not in number:
        number += "."
    return number + found + exponent
