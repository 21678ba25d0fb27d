# SPDX-License-Identifier: Apache-2.0
"""Small forms that a browser posts."""

from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from pipecd_model.errors import ConfigError

MOST_BYTES: Final = 16 * 1024
MOST_FIELDS: Final = 20


async def form(request: Request) -> dict[str, str]:
    """Returns the fields of a form. Raises ConfigError for what is none of ours."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise ConfigError("the form is too large")
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, strict_parsing=True
        )
    except ValueError:
        raise ConfigError("the form cannot be read") from None
    return dict(pairs)
