# SPDX-License-Identifier: Apache-2.0
"""Small forms that a browser posts, and whether it was our own page that posted them."""

from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

from pipecd_model.errors import ConfigError, DeniedError

MOST_BYTES: Final = 16 * 1024
MOST_FIELDS: Final = 20


async def form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises ConfigError for what is none of ours."""
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


def check_same_site(request: Request, public_url: str) -> None:
    """Raises DeniedError when another site's page made the browser send this.

    A program that is no browser sends neither header, and carries nobody's cookies.
    """
    # Where a browser says it itself, no page can forge it; a proxy may have changed the host.
    told = request.headers.get("sec-fetch-site", "")
    if told:
        if told not in {"same-origin", "none"}:
            raise DeniedError("the request comes from another site")
        return
    origin = request.headers.get("origin", "")
    ours = {request.headers.get("host", ""), urlsplit(public_url).netloc}
    if origin and urlsplit(origin).netloc not in ours:
        raise DeniedError("the request comes from another site")
