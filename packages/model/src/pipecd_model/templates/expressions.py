# SPDX-License-Identifier: Apache-2.0
"""What an action computes: fields, variables, calls and pipelines.

Values come from the data and from functions alone. A name after a dot is a key of a map, and
nothing else: no attribute of a Python object can be reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from pipecd_model.templates.faults import FunctionError, NoSuchKeyError, TemplateFaultError
from pipecd_model.templates.functions.signature import Function, fit
from pipecd_model.templates.kinds import MISSING, is_true
from pipecd_model.templates.limits import Meter, TooMuchError
from pipecd_model.templates.literals import Number

Frame = list[object]
"""The variables of one call of a template, by number; number 0 is `$`."""

NOT_GIVEN: Final = object()
"""What stands for the value of the pipe when a command is the first one."""


class Rendering:
    """One rendering on its way."""

    __slots__ = ("at", "depth", "meter", "templates", "written")

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.written: list[str] = []
        self.at = 0  # the character of the template that is being evaluated
        self.depth = 0  # of blocks
        self.templates = 0  # that are being called

    def write(self, text: str) -> None:
        self.meter.write(len(text))
        self.written.append(text)


class Expression(Protocol):
    """Something that has a value."""

    position: int

    def evaluate(
        self, run: Rendering, frame: Frame, dot: object, final: object = NOT_GIVEN, /
    ) -> object:
        """Return the value; `final` is what the pipe hands on."""


_T = TypeVar("_T")


def _refuse_argument(final: object, value: _T) -> _T:
    if final is not NOT_GIVEN:
        raise TemplateFaultError("this is not a function, but it is given arguments")
    return value


def _field(run: Rendering, value: object, names: Sequence[str], prefix: str) -> object:
    """Follow a chain of names into maps."""
    for number, name in enumerate(names):
        if isinstance(value, dict):
            if name in value:
                value = value[name]
                continue
            if run.meter.strict:
                raise NoSuchKeyError(name, value, names[:number], prefix)
            value = MISSING
        elif value is not MISSING or run.meter.strict:
            raise TemplateFaultError(f"only a map has {name!r}, and this is none")
    return value


@dataclass(slots=True)
class Literal:
    """A text, true or false."""

    position: int
    value: object

    def evaluate(
        self, run: Rendering, frame: Frame, dot: object, final: object = NOT_GIVEN, /
    ) -> object:
        return _refuse_argument(final, self.value)


@dataclass(slots=True)
class NumberLiteral:
    """A number as written."""

    position: int
    number: Number

    def evaluate(
        self, run: Rendering, frame: Frame, dot: object, final: object = NOT_GIVEN, /
    ) -> object:
        return _refuse_argument(final, self.number.value)


@dataclass(slots=True)
class Nil:
    """The word nil: an argument, never a command."""

    position: int

    def evaluate(
        self, run: Rendering, frame: Frame, dot: object, final: object = NOT_GIVEN, /
    ) -> object:
        run.at = self.position
        raise TemplateFaultError("nil is not a value")


@dataclass(slots=True)
class FieldAccess:
    """The dot, or a chain of keys from it: `.a.b`."""

    position: int
    names: tuple[str, ...]

    def evaluate(
        self, run: Rendering, frame: Frame, dot: object, final: object = NOT_GIVEN, /
    ) -> object:
        run.at = self.position
        return _refuse_argument(final, _field(run, dot, self.names, ""))


@dataclass(slots=True)
class Variable:
    """A variable, or a chain of keys from it: `$x.a`."""

    position: int
    name: str
    slot: int
    names: tuple[str, ...]

    def evaluate(
        self, run: Rendering, frame: Frame, dot: object, final: object = NOT_GIVEN, /
    ) -> object:
        run.at = self.position
        value = frame[self.slot]
        if self.names:
            value = _field(run, value, self.names, "" if self.name == "$" else self.name)
        return _refuse_argument(final, value)


@dataclass(slots=True)
class Chain:
    """A chain of keys from what is in parentheses or what a function gives: `(dict "a" 1).a`."""

    position: int
    inside: Expression
    names: tuple[str, ...]

    def evaluate(
        self, run: Rendering, frame: Frame, dot: object, final: object = NOT_GIVEN, /
    ) -> object:
        value = self.inside.evaluate(run, frame, dot)
        run.at = self.position
        return _refuse_argument(final, _field(run, value, self.names, ""))


@dataclass(slots=True)
class Surplus:
    """A command that has arguments and is no function."""

    position: int
    head: Expression

    def evaluate(
        self, run: Rendering, frame: Frame, dot: object, final: object = NOT_GIVEN, /
    ) -> object:
        if isinstance(self.head, Nil):
            self.head.evaluate(run, frame, dot)
        run.at = self.position
        raise TemplateFaultError("this is not a function, but it is given arguments")


@dataclass(slots=True)
class FunctionCall:
    """A function and its arguments."""

    position: int
    name: str
    function: Function
    arguments: tuple[Expression, ...]

    def evaluate(
        self, run: Rendering, frame: Frame, dot: object, final: object = NOT_GIVEN, /
    ) -> object:
        function = self.function
        run.at = self.position
        run.meter.step()
        run.meter.call()
        piped = final is not NOT_GIVEN
        if not function.accepts(len(self.arguments) + piped):
            raise TemplateFaultError(
                f"{self.name} takes {function.arity()} arguments, not {len(self.arguments) + piped}"
            )
        if function.stops_at is not None:
            return self._choose(run, frame, dot, final)
        values: list[object] = []
        for number, argument in enumerate(self.arguments):
            values.append(self._argument(run, frame, dot, number, argument))
        if piped:
            values.append(fit(self.name, function, len(values), final))
        run.at = self.position
        return self._call(run, values)

    def _argument(
        self, run: Rendering, frame: Frame, dot: object, number: int, argument: Expression
    ) -> object:
        if isinstance(argument, NumberLiteral):
            return fit(self.name, self.function, number, argument.number)
        if isinstance(argument, Nil):
            return fit(self.name, self.function, number, MISSING)
        value = argument.evaluate(run, frame, dot)
        run.at = self.position
        return fit(self.name, self.function, number, value)

    def _choose(self, run: Rendering, frame: Frame, dot: object, final: object) -> object:
        """Return the first value that decides; what comes after it is not evaluated."""
        value: object = MISSING
        for number, argument in enumerate(self.arguments):
            value = self._argument(run, frame, dot, number, argument)
            if is_true(value) is self.function.stops_at:
                return value
        return value if final is NOT_GIVEN else final

    def _call(self, run: Rendering, values: list[object]) -> object:
        meter = run.meter
        function = self.function
        try:
            given = meter.admit(values)
            if function.cost is not None:
                meter.allow(given + function.cost(*values))
            result = function.call(meter, *values) if function.metered else function.call(*values)
            meter.count_value(result)
        except (TooMuchError, FunctionError) as failure:
            raise TemplateFaultError(f"{self.name}: {failure}") from None
        except NoSuchKeyError as missing:
            raise self._no_such_key(missing) from None
        except _FAILURES as failure:
            raise TemplateFaultError(f"{self.name}{_explain_failure(failure)}") from None
        return result

    def _no_such_key(self, missing: NoSuchKeyError) -> TemplateFaultError:
        """Tell of a key that is written in the template; one that was computed may be a secret."""
        written = {each.value for each in self.arguments if isinstance(each, Literal)}
        if missing.key not in written or not written.issuperset(missing.path):
            return TemplateFaultError(f"{self.name}: there is no such key")
        first = self.arguments[0]
        names = (*first.names, *missing.path) if isinstance(first, FieldAccess) else ()
        return NoSuchKeyError(missing.key, missing.inside, names)


_FAILURES: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_MEANINGS: Final[dict[type[Exception], str]] = {
    ZeroDivisionError: ": it divides by zero",
    IndexError: ": the index is out of range",
    TypeError: ": a value is of the wrong kind",
    ValueError: ": a value is of the wrong form",
}


def _explain_failure(failure: Exception) -> str:
    for known, meaning in _MEANINGS.items():
        if isinstance(failure, known):
            return meaning
    return " failed"


@dataclass(slots=True)
class Pipeline:
    """Commands that hand their value on to the next, and the variables that get the last one."""

    position: int
    commands: tuple[Expression, ...]
    slots: tuple[int, ...] = ()
    """The numbers of the variables; of two, the loop sets both."""

    def evaluate(
        self, run: Rendering, frame: Frame, dot: object, final: object = NOT_GIVEN, /
    ) -> object:
        run.meter.step()
        value = NOT_GIVEN
        for command in self.commands:
            value = command.evaluate(run, frame, dot, value)
            if value is None:
                value = MISSING
        _refuse_argument(final, None)
        if len(self.slots) == 1:
            frame[self.slots[0]] = value
        return value
