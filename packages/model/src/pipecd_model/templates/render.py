# SPDX-License-Identifier: Apache-2.0
"""Renders one text: the entry point for all callers that have a template.

Here the limits are set and every failure becomes a fault with its place in the author's file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipecd_model.templates.explain import BadTemplateError, place
from pipecd_model.templates.limits import LIMITS, RenderLimits

_OPEN: Final = "{{"


def render(
    text: str,
    data: Mapping[str, object],
    *,
    name: str,
    missing_key_error: bool = True,
    limits: RenderLimits = LIMITS,
) -> str:
    """Render a Go template with sprig's functions; raises BadTemplateError with the place.

    `data` holds plain values alone: texts, numbers, lists and maps. `name` is the file as its
    author knows it. Bytes that are no UTF-8 may stand in `data` and in the result in the form of
    Python's `surrogateescape`.
    """
    if _OPEN not in text:
        return text
    # Most programs never need the engine.
    from pipecd_model.templates import engine  # noqa: PLC0415

    try:
        return engine.render(text, data, limits, strict=missing_key_error)
    except engine.TemplateFaultError as fault:
        line, column = (0, 0) if fault.position is None else place(text, fault.position)
        raise BadTemplateError(
            name, str(fault), hint=fault.hint, line=line, column=column
        ) from None
