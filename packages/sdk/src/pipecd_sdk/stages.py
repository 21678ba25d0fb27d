# SPDX-License-Identifier: Apache-2.0
"""The stages that a plugin offers: methods of its class marked with `@stage`."""

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from pipecd_sdk.config import StageConfig
from pipecd_sdk.context import StageContext
from pipecd_sdk.results import Outcome

Handler = Callable[..., Awaitable[Outcome | None]]
F = TypeVar("F", bound=Handler)

_MARK: Final = "__pipecd_stage__"


class StageDefinitionError(TypeError):
    """A method marked with `@stage` cannot be a handler.

    Example:
        StageDefinitionError: Wait.wait (WAIT) must be an async function
    """


class StageDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One stage that a plugin offers."""

    name: str
    attribute: str = ""
    """The name of its method."""
    config: type[StageConfig] | None = None
    """The type of its options; None when it takes none."""
    desc: str = ""
    rollback: bool = False
    quick_sync: bool = False
    needs_files: bool = True
    finishes_on_stop: bool = False


def stage(
    name: str,
    *,
    desc: str = "",
    rollback: bool = False,
    quick_sync: bool = False,
    needs_files: bool = True,
    finishes_on_stop: bool = False,
) -> Callable[[F], F]:
    """Marks `async def f(self, ctx)` or `async def f(self, ctx, config: MyConfig)` as a stage.

    `rollback`: it is planned by the plugin and cannot be written in a pipeline. `quick_sync`: it is
    what a deployment without a pipeline runs. `needs_files=False`: no checkout is made for it.
    `finishes_on_stop`: when the plugin is asked to stop, it waits for the stage, which would
    otherwise be cancelled and continued by the next process.

    Example:
        @stage("WAIT", needs_files=False)
        async def wait(self, ctx: StageContext, config: WaitConfig) -> None: ...
    """
    definition = StageDefinition(
        name=name,
        desc=desc,
        rollback=rollback,
        quick_sync=quick_sync,
        needs_files=needs_files,
        finishes_on_stop=finishes_on_stop,
    )

    def mark(function: F) -> F:
        setattr(function, _MARK, definition)
        return function

    return mark


def stages_of(cls: type[object]) -> Mapping[str, StageDefinition]:
    """Returns the stages of a plugin's class by their names, in the order they are written."""
    found: dict[str, StageDefinition] = {}
    for owner in reversed(cls.__mro__):
        for attribute, function in vars(owner).items():
            definition = getattr(function, _MARK, None)
            if definition is None:
                continue
            if (other := found.get(definition.name)) and other.attribute != attribute:
                raise StageDefinitionError(
                    f"{cls.__name__}: {other.attribute} and {attribute} are both {definition.name}"
                )
            found[definition.name] = _complete(definition, attribute, function)
    if not found:
        raise StageDefinitionError(f"{cls.__name__} has no method marked with @stage")
    return found


def _complete(definition: StageDefinition, attribute: str, function: Any) -> StageDefinition:
    """Read the type of the options from the method's signature."""
    place = f"{function.__qualname__} ({definition.name})"
    if not inspect.iscoroutinefunction(function):
        raise StageDefinitionError(f"{place} must be an async function")
    parameters = list(inspect.signature(function).parameters)
    hints = typing.get_type_hints(function)
    if len(parameters) not in {2, 3} or hints.get(parameters[1]) is not StageContext:
        raise StageDefinitionError(f"{place} must take ctx: StageContext, and perhaps its options")
    config = None
    if len(parameters) == 3:
        config = hints.get(parameters[2])
        if not (isinstance(config, type) and issubclass(config, StageConfig)):
            raise StageDefinitionError(f"{place}: annotate {parameters[2]} with a StageConfig")
    return StageDefinition(
        name=definition.name,
        attribute=attribute,
        config=config,
        desc=definition.desc,
        rollback=definition.rollback,
        quick_sync=definition.quick_sync,
        needs_files=definition.needs_files,
        finishes_on_stop=definition.finishes_on_stop,
    )
