# SPDX-License-Identifier: Apache-2.0
"""The engine that reads and runs Go templates. Loaded only when needed."""

from __future__ import annotations

from collections.abc import Mapping

from pipecd_model.templates.blocks import call
from pipecd_model.templates.expressions import Rendering
from pipecd_model.templates.faults import NoSuchKeyError, TemplateFaultError
from pipecd_model.templates.functions.table import FUNCTIONS
from pipecd_model.templates.kinds import StrangeValueError
from pipecd_model.templates.limits import Meter, RenderLimits, TooLongError, TooMuchError
from pipecd_model.templates.parser import parse

__all__ = ["TemplateFaultError", "render"]


def render(text: str, data: Mapping[str, object], limits: RenderLimits, *, strict: bool) -> str:
    """Return what a template makes of the data; raises TemplateFaultError."""
    run = Rendering(Meter(limits, strict=strict))
    root = dict(data)
    try:
        definition = parse(text, limits, FUNCTIONS)
        call(definition, run, root)
    except TemplateFaultError as fault:
        if fault.position is None:
            fault.position = run.at
        if isinstance(fault, NoSuchKeyError) and not _holds(root, fault.inside):
            fault.hint = ""  # a map that was made of a value may have secret keys
        raise
    except TooMuchError as much:
        raise TemplateFaultError(str(much), position=run.at) from None
    except TooLongError:
        raise TemplateFaultError(
            "the template takes too long",
            hint="it loops too often or over too much",
            position=run.at,
        ) from None
    except RecursionError:
        raise TemplateFaultError("the template is nested too deeply", position=run.at) from None
    except StrangeValueError as strange:
        raise TemplateFaultError(str(strange), position=run.at) from None
    return "".join(run.written)


def _holds(root: object, wanted: object) -> bool:
    """Say whether a map is one of the data, and not one that a function made."""
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if each is wanted:
            return True
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list | tuple):
            waiting += each
    return False
