# SPDX-License-Identifier: Apache-2.0
"""The functions a template gets, each held to the meter of the rendering it is called in.

Loaded together with the engine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import gotpl
from gotpl.funcs.sprig import text_func_map

from pipecd_model.templates.builtins import BUILTINS
from pipecd_model.templates.encoding import ENCODINGS
from pipecd_model.templates.growth import GROWTH
from pipecd_model.templates.limits import METER
from pipecd_model.templates.names import ALLOWED
from pipecd_model.templates.repaired import REPAIRED

Function = Callable[..., object]


@functools.cache
def table() -> dict[str, Function]:
    """All of them; sprig's own `slice` hides the one of Go, there as here."""
    sprig = text_func_map()
    allowed = {name: sprig[name] for name in ALLOWED}
    functions = {**BUILTINS, **allowed, **ENCODINGS, **REPAIRED}
    return {name: _metered(name, function) for name, function in functions.items()}


def _metered(name: str, function: Function) -> Function:
    growth = GROWTH.get(name)

    @functools.wraps(function)
    def call(*arguments: object) -> object:
        meter = METER.get()
        given = meter.admit(arguments)
        if growth is not None:
            meter.allow(given + growth(*arguments))
        result = function(*arguments)
        meter.made(result.value if isinstance(result, gotpl.FunctionResult) else result)
        return result

    return call
