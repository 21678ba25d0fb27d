# SPDX-License-Identifier: Apache-2.0
"""Rendering one text: the way in for everybody who has a template.

Here the limits are set and every failure becomes a fault with its place in the author's file.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipecd_model.templates import scan
from pipecd_model.templates.explain import BadTemplateError, fault_of, place
from pipecd_model.templates.limits import LIMITS, METER, Limits, Meter, TooLongError, time_limit


def render(
    text: str,
    data: Mapping[str, object],
    *,
    name: str,
    missing_key_error: bool = True,
    limits: Limits = LIMITS,
) -> str:
    """Render a Go template with sprig's functions; raises BadTemplateError with the place.

    `data` holds plain values alone: texts, numbers, lists and maps. `name` is the file as its
    author knows it. Bytes that are no UTF-8 may stand in `data` and in the result in the form of
    Python's `surrogateescape`.
    """
    if scan.OPEN not in text:
        return text
    try:
        scan.check(text, limits)
    except scan.RefusedError as refused:
        line, column = place(text, refused.position)
        raise BadTemplateError(
            name, str(refused), hint=refused.hint, line=line, column=column
        ) from None
    # The engine takes a quarter of a second to load, and most programs never need it.
    from pipecd_model.templates import engine  # noqa: PLC0415

    meter = METER.set(Meter(limits, strict=missing_key_error))
    try:
        template = engine.compiled(text, name, limits, strict=missing_key_error)
        with time_limit(limits.seconds, within=engine.FOLDERS):
            return template.render(data)
    except engine.FAILURES as failure:
        raise fault_of(failure, text, name, data) from None
    except TooLongError:
        raise BadTemplateError(
            name, "the template takes too long", hint="it loops too often or over too much"
        ) from None
    finally:
        METER.reset(meter)
