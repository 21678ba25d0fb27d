# SPDX-License-Identifier: Apache-2.0
"""Was it a page of our own that made a browser send a request? Asked where cookies count."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pipecd_wire.rpc import StatusError
from pipecd_wire.rpc.web import Scope, Screen


def is_own_origin(headers: Mapping[str, str], public_url: str) -> bool:
    """Returns False when the page of another site made the browser send this.

    A program that is no browser sends neither header, and carries nobody's cookies. The origin
    `null`, of sandboxes and local files, is nobody's and never ours.
    """
    # Where a browser says it itself, no page can forge it; a proxy may have changed the host.
    told = headers.get("sec-fetch-site", "")
    if told:
        return told in {"same-origin", "none"}
    origin = headers.get("origin")
    if origin is None:
        return True
    ours = {headers.get("host", "").lower(), urlsplit(public_url).netloc.lower()} - {""}
    return urlsplit(origin).netloc.lower() in ours


def screen_cookies(public_url: str) -> Screen:
    """Returns what refuses calls of gRPC-Web that another site makes with somebody's cookie."""

    def screen(scope: Scope) -> None:
        headers = _headers(scope)
        if "cookie" in headers and not is_own_origin(headers, public_url):
            raise StatusError(
                "PERMISSION_DENIED",
                "the request comes from another site (if it is yours, set spec.address to its URL)",
            )

    return screen


def _headers(scope: Mapping[str, Any]) -> dict[str, str]:
    """The first of each name counts."""
    pairs = reversed(scope["headers"])
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}
