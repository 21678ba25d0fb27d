# SPDX-License-Identifier: Apache-2.0
"""What a template does: write, choose, loop, call other templates."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from pipecd_model.templates.expressions import Expression, Frame, Pipeline, Rendering
from pipecd_model.templates.faults import TemplateFaultError
from pipecd_model.templates.gofmt import to_output
from pipecd_model.templates.kinds import MISSING, describe, is_true, sort_keys


class Leave(enum.Enum):
    """How a block leaves the body of its loop: with break or continue."""

    BREAK = "break"
    CONTINUE = "continue"


class Block(Protocol):
    """A part of a template."""

    def execute(self, run: Rendering, frame: Frame, dot: object, /) -> Leave | None:
        """Executes the block; returns None, or break or continue for the loop around it."""


Body = tuple[Block, ...]


def execute_all(body: Body, run: Rendering, frame: Frame, dot: object) -> Leave | None:
    """Executes blocks in order, until one returns break or continue."""
    for block in body:
        leave = block.execute(run, frame, dot)
        if leave is not None:
            return leave
    return None


@contextmanager
def _deeper(run: Rendering) -> Iterator[None]:
    if run.depth >= run.meter.limits.blocks:
        raise TemplateFaultError("the template is nested too deeply")
    run.depth += 1
    try:
        yield
    finally:
        run.depth -= 1


@dataclass(slots=True)
class Plain:
    """Text between actions."""

    text: str

    def execute(self, run: Rendering, frame: Frame, dot: object, /) -> Leave | None:
        run.meter.step()
        run.write(self.text)
        return None


@dataclass(slots=True)
class Action:
    """A pipeline whose value is written."""

    pipeline: Pipeline

    def execute(self, run: Rendering, frame: Frame, dot: object, /) -> Leave | None:
        value = self.pipeline.evaluate(run, frame, dot)
        if not self.pipeline.slots:
            run.at = self.pipeline.position
            run.write(value if isinstance(value, str) else to_output(run.meter, value))
        return None


@dataclass(slots=True)
class Jump:
    """The action break or continue."""

    leave: Leave

    def execute(self, run: Rendering, frame: Frame, dot: object, /) -> Leave | None:
        run.meter.step()
        return self.leave


@dataclass(slots=True)
class Branch:
    """A condition and what is done when it holds; `with` makes its value the dot."""

    pipeline: Pipeline
    body: Body
    sets_dot: bool


@dataclass(slots=True)
class Conditional:
    """The action if or with, its `else if` and `else with` included."""

    branches: tuple[Branch, ...]
    otherwise: Body

    def execute(self, run: Rendering, frame: Frame, dot: object, /) -> Leave | None:
        with _deeper(run):
            for branch in self.branches:
                value = branch.pipeline.evaluate(run, frame, dot)
                if is_true(value):
                    inside = value if branch.sets_dot else dot
                    return execute_all(branch.body, run, frame, inside)
            return execute_all(self.otherwise, run, frame, dot)


@dataclass(slots=True)
class Range:
    """The action range."""

    pipeline: Pipeline
    body: Body
    otherwise: Body

    def execute(self, run: Rendering, frame: Frame, dot: object, /) -> Leave | None:
        value = self.pipeline.evaluate(run, frame, dot)
        run.at = self.pipeline.position
        with _deeper(run):
            empty = True
            for index, item in self._turns(run, value):
                empty = False
                run.meter.iterate()
                run.meter.step()
                self._set_variables(frame, index, item)
                if execute_all(self.body, run, frame, item) is Leave.BREAK:
                    break
            return execute_all(self.otherwise, run, frame, dot) if empty else None

    def _set_variables(self, frame: Frame, index: object, item: object) -> None:
        slots = self.pipeline.slots
        if len(slots) == 2:
            frame[slots[0]] = index
        if slots:
            frame[slots[-1]] = item

    def _turns(self, run: Rendering, value: object) -> Iterable[tuple[object, object]]:
        if isinstance(value, dict):
            return [(key, value[key]) for key in sort_keys(value)]
        if isinstance(value, list | tuple):
            return enumerate(value)
        if isinstance(value, int) and not isinstance(value, bool):
            if len(self.pipeline.slots) == 2:
                raise TemplateFaultError("a range over a number has one variable")
            if not run.meter.can_iterate(value):
                run.meter.iterate(value)
            kind = type(value)
            return ((number, kind(number)) for number in range(value))
        if value is MISSING:
            return ()
        raise TemplateFaultError(f"range needs a list, a map or a number, not {describe(value)}")


@dataclass(slots=True)
class Definition:
    """A template that has a name."""

    body: Body = ()
    variables: int = 1
    """How many it has, `$` included."""


@dataclass(slots=True)
class TemplateCall:
    """The action template, and that of block."""

    position: int
    name: str
    argument: Expression | None
    definitions: dict[str, Definition] = field(repr=False)

    def execute(self, run: Rendering, frame: Frame, dot: object, /) -> Leave | None:
        definition = self.definitions.get(self.name)
        run.at = self.position
        if definition is None:
            raise TemplateFaultError(
                f"there is no template {self.name[:_SHOWN]!r}", hint="define it in the same file"
            )
        run.meter.step()
        run.meter.call()
        inside = MISSING if self.argument is None else self.argument.evaluate(run, frame, dot)
        run.at = self.position
        with _one_more_template(run):
            call(definition, run, inside)
        return None


_SHOWN: Final = 200


@contextmanager
def _one_more_template(run: Rendering) -> Iterator[None]:
    if run.templates >= run.meter.limits.templates:
        raise TemplateFaultError(
            f"templates call each other more than {run.meter.limits.templates} deep"
        )
    run.templates += 1
    try:
        with _deeper(run):
            yield
    finally:
        run.templates -= 1


def call(definition: Definition, run: Rendering, dot: object) -> None:
    """Rendering a template on its own variables."""
    frame: Frame = [MISSING] * definition.variables
    frame[0] = dot
    execute_all(definition.body, run, frame, dot)
