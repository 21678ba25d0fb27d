# SPDX-License-Identifier: Apache-2.0
"""Which page made a browser send a request, by the headers that browsers add.

A page cannot forge these headers. A program that is no browser sends none of them, and has no
cookies of a user.
"""

from enum import Enum, auto
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from pipecd_model.errors import DeniedError

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Sender(Enum):
    """The page that made the browser send a request."""

    OWN_PAGE = auto()
    OTHER_PAGE = auto()
    UNKNOWN = auto()
    """No page: a program, or a person who typed the address."""


def sender_of(request: Request, public_url: str) -> Sender:
    """Returns which page made the browser send a request.

    A page is ours when its host is that of `public_url` or the one that the request is for.
    """
    origins = request.headers.getlist("origin")
    if "null" in origins:
        return Sender.OTHER_PAGE  # a page without an origin: in a sandbox, or from a file
    # A proxy may have changed the host that we see, but not this.
    sites = set(request.headers.getlist("sec-fetch-site"))
    if sites - {"same-origin", "none"}:
        return Sender.OTHER_PAGE
    if "same-origin" in sites:
        return Sender.OWN_PAGE
    pages = origins or request.headers.getlist("referer")
    if not pages:
        return Sender.UNKNOWN
    ours = {request.headers.get("host", "").lower(), urlsplit(public_url).netloc.lower()}
    is_ours = all(_authorities(page) & ours for page in pages)
    return Sender.OWN_PAGE if is_ours else Sender.OTHER_PAGE


def check_sender(request: Request, public_url: str) -> None:
    """Raises DeniedError when another site's page made the browser send this."""
    if sender_of(request, public_url) is Sender.OTHER_PAGE:
        raise DeniedError("the request comes from another site")


def _authorities(url: str) -> set[str]:
    """Returns host and port of a page, in every way of writing them; empty for no page."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return set()
    default = DEFAULT_PORTS.get(parts.scheme)
    host = parts.netloc.lower().removesuffix(f":{port}")
    if default is None or not host or "@" in host:
        return set()
    if port in {None, default}:
        return {host, f"{host}:{default}"}
    return {f"{host}:{port}"}
