# SPDX-License-Identifier: Apache-2.0
"""The engine that reads and runs Go templates, set up as our sandbox. Loaded only when needed."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

import gotpl

from pipecd_model.templates.functions import table
from pipecd_model.templates.limits import Limits

FAILURES: Final = (
    gotpl.TemplateError,
    RecursionError,
    # What the engine itself stumbles over, such as a number of thousands of digits.
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
)


FOLDERS: Final = (str(Path(gotpl.__file__).parent), str(Path(__file__).parent))
"""Where the code is that runs while a template is rendered."""


def compiled(text: str, name: str, limits: Limits, *, strict: bool) -> gotpl.Template:
    """Read a template; raises one of FAILURES."""
    return _environment(limits, strict).from_string(text, name=name)


@functools.cache
def _environment(limits: Limits, strict: bool) -> gotpl.Environment:
    functions = table()
    budget = gotpl.ExecutionBudget(
        max_output_chars=limits.output,
        max_iterations=limits.iterations,
        max_template_depth=limits.templates,
        max_function_calls=limits.calls,
    )
    sandbox = gotpl.SandboxPolicy(
        allow_functions=functions, max_template_chars=limits.text, default_budget=budget
    )
    return gotpl.Environment(
        functions=functions,
        missing_key="error" if strict else "default",
        sandbox=sandbox,
        budget=budget,
    )
