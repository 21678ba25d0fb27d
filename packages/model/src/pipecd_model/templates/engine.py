# SPDX-License-Identifier: Apache-2.0
"""The engine that reads and runs Go templates. Loaded only when needed."""

from __future__ import annotations

from collections.abc import Mapping

from pipecd_model.templates.blocks import call
from pipecd_model.templates.expressions import Run
from pipecd_model.templates.faults import TemplateFaultError
from pipecd_model.templates.functions.table import FUNCTIONS
from pipecd_model.templates.kinds import StrangeValueError
from pipecd_model.templates.limits import Limits, Meter, TooLongError, TooMuchError
from pipecd_model.templates.parser import parse

__all__ = ["TemplateFaultError", "render"]


def render(text: str, data: Mapping[str, object], limits: Limits, *, strict: bool) -> str:
    """Return what a template makes of the data; raises TemplateFaultError."""
    run = Run(Meter(limits, strict=strict))
    try:
        definition = parse(text, limits, FUNCTIONS)
        call(definition, run, dict(data))
    except TemplateFaultError as fault:
        if fault.position is None:
            fault.position = run.at
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
