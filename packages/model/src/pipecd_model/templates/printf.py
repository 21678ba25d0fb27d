# SPDX-License-Identifier: Apache-2.0
"""The format texts of `printf`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from pipecd_model.templates.faults import FunctionError
from pipecd_model.templates.gofmt import PLAIN, Style, bad_verb, to_text, write
from pipecd_model.templates.kinds import MISSING, type_name
from pipecd_model.templates.limits import Meter, TooMuchError

WIDEST: Final = 10_000
"""Characters to which one value may be filled up."""

_INDEX: Final = re.compile(r"\[([0-9]*)\]")
_COUNT: Final = re.compile(r"[0-9]+")
_FLAGS: Final = {"+": "plus", "-": "minus", "#": "sharp", " ": "space", "0": "zero"}


def sprintf(meter: Meter, form: str, values: tuple[object, ...]) -> str:
    """Return values in a form; raises TooMuchError when it becomes too long."""
    return _Printer(meter, form, values).run()


class _Printer:
    """One call of printf."""

    def __init__(self, meter: Meter, form: str, values: tuple[object, ...]) -> None:
        self._meter = meter
        self._form = form
        self._values = values
        self._limit = meter.limits.value
        self._at = 0
        self._next = 0  # the number of the next value
        self._reordered = False
        self._good_index = True
        self._written: list[str] = []
        self._size = 0

    def run(self) -> str:
        form = self._form
        while (percent := form.find("%", self._at)) >= 0:
            self._put(form[self._at : percent])
            self._at = percent + 1
            self._verb()
        self._put(form[self._at :])
        if not self._reordered and self._next < len(self._values):
            extra = ", ".join(_describe(each) for each in self._values[self._next :])
            self._put(f"%!(EXTRA {extra})")
        return "".join(self._written)

    def _put(self, text: str) -> None:
        self._size += len(text)
        if self._size > self._limit:
            raise TooMuchError("a value becomes too large")
        self._written.append(text)

    def _verb(self) -> None:
        """Read one verb and write its value."""
        self._meter.step()
        form = self._form
        self._reordered = self._after_index = False
        self._good_index = True
        style = self._flags()
        self._index()
        style = self._width(style)
        style = self._precision(style)
        if not self._after_index:
            self._index()
        if self._at >= len(form):
            self._put("%!(NOVERB)")
            return
        verb = form[self._at]
        self._at += 1
        if verb == "%":
            self._put("%")
        elif not self._good_index:
            self._put(f"%!{verb}(BADINDEX)")
        elif self._next >= len(self._values):
            self._put(f"%!{verb}(MISSING)")
        else:
            value = self._values[self._next]
            self._next += 1
            widest = max(style.width or 0, style.precision or 0)
            if widest and self._size + _leaves(value) * widest > self._limit:
                raise TooMuchError("a value becomes too large")
            self._put(_write(value, verb, style))

    def _flags(self) -> Style:
        set_flags = set()
        while self._at < len(self._form) and (flag := self._form[self._at]) in _FLAGS:
            set_flags.add(_FLAGS[flag])
            self._at += 1
        return replace(PLAIN, **dict.fromkeys(set_flags, True)) if set_flags else PLAIN

    def _index(self) -> None:
        """Read `[n]`, which chooses the value that is next."""
        if not self._form.startswith("[", self._at):
            return
        self._reordered = True
        found = _INDEX.match(self._form, self._at)
        if found is None:
            self._good_index = False
            closed = self._form.find("]", self._at)
            self._at = closed + 1 if closed >= 0 else self._at + 1
            return
        self._at = found.end()
        number = int(found[1][:9] or 0)
        if 1 <= number <= len(self._values):
            self._next = number - 1
            self._after_index = True
        else:
            self._good_index = False

    def _width(self, style: Style) -> Style:
        if self._form.startswith("*", self._at):
            self._at += 1
            width = self._star()
            if width is None:
                self._put("%!(BADWIDTH)")
                return style
            if width < 0:
                style = replace(style, minus=True, zero=False)
            return replace(style, width=abs(width))
        found = _COUNT.match(self._form, self._at)
        if found is None:
            return style
        self._at = found.end()
        if self._after_index:  # "%[3]2d"
            self._good_index = False
        return replace(style, width=_check_width(int(found[0][:9])))

    def _precision(self, style: Style) -> Style:
        if not self._form.startswith(".", self._at):
            return style
        self._at += 1
        if self._after_index:  # "%[3].2d"
            self._good_index = False
        self._index()
        if self._form.startswith("*", self._at):
            self._at += 1
            precision = self._star()
            if precision is None or precision < 0:
                if precision is None:
                    self._put("%!(BADPREC)")
                return style
            return replace(style, precision=precision)
        found = _COUNT.match(self._form, self._at)
        if found is not None:
            self._at = found.end()
        return replace(style, precision=_check_width(int(found[0][:9]) if found else 0))

    def _star(self) -> int | None:
        """Take a value as a width or precision."""
        self._after_index = False
        if self._next >= len(self._values):
            return None
        value = self._values[self._next]
        self._next += 1
        if isinstance(value, int) and not isinstance(value, bool):
            return _check_width(value)
        return None


def _check_width(number: int) -> int:
    if abs(number) > WIDEST:
        raise TooMuchError(f"printf may fill up to {WIDEST:,} characters")
    return number


def _write(value: object, verb: str, style: Style) -> str:
    if verb in "vw" and style.sharp:
        style = replace(style, sharp=False, as_source=True)
    if verb in "vw" and style.plus:
        style = replace(style, plus=False)
    if verb == "T" and (value is None or value is MISSING):
        return style.pad("<nil>")
    if verb == "p" and isinstance(value, list | dict | tuple):
        raise FunctionError("a value has no address here")
    if verb == "w":
        return bad_verb(verb, value, style)
    return write(value, verb, style)


def _leaves(value: object) -> int:
    """Count the values that a verb writes: those in a list each get the whole width."""
    if isinstance(value, dict):
        return len(value) + sum(map(_leaves, value.values()))
    return sum(map(_leaves, value)) if isinstance(value, list | tuple) else 1


def _describe(value: object) -> str:
    if value is None or value is MISSING:
        return "<nil>"
    return f"{type_name(value)}={to_text(value)}"
