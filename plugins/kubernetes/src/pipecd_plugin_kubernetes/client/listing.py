# SPDX-License-Identifier: Apache-2.0
"""Lists that are complete: in pages, all of one version of the cluster's state."""

from collections.abc import Callable
from typing import Any, Final

from pipecd_plugin_kubernetes.client.caller import Caller
from pipecd_plugin_kubernetes.client.decoding import ListPage, decode_body, make_page_decoder
from pipecd_plugin_kubernetes.client.errors import ApiError, GoneError, TooLargeError
from pipecd_plugin_kubernetes.client.requests import Request
from pipecd_plugin_kubernetes.client.resources import Listing

PAGE: Final = 500
"""Objects of a page."""
SMALL_PAGE: Final = 25
"""Objects of a page when those of the usual size are too large to hold."""
MOST_OBJECTS: Final = 2_000_000
"""Of a list; more is a server that does not stop."""
MOST_RESTARTS: Final = 3
"""How often a list whose version is gone meanwhile is begun again; the last time in one page."""


async def list_all(
    caller: Caller, request: Request, kind: Any, convert: Callable[[Any], Any] | None
) -> Listing[Any]:
    """Returns all objects of one version, or raises. `convert` makes of each what is kept of it.

    The next page of a version that the server has forgotten (410) is never taken from another one:
    the list is begun again.
    """
    page = PAGE
    restarts = 0
    while True:
        try:
            return await _list_once(caller, request, kind, convert, page)
        except GoneError:
            restarts += 1
            if restarts > MOST_RESTARTS:
                raise
            if restarts == MOST_RESTARTS:
                page = 0
        except TooLargeError:
            if page == SMALL_PAGE:
                raise
            page = SMALL_PAGE


async def _list_once(
    caller: Caller,
    request: Request,
    kind: Any,
    convert: Callable[[Any], Any] | None,
    page_size: int,
) -> Listing[Any]:
    decoder = make_page_decoder(kind)
    items: list[Any] = []
    token = version = ""
    while True:
        asked = request.add_query(("limit", str(page_size))) if page_size else request
        if token:
            asked = asked.add_query(("continue", token))
        answer = await caller.call(asked)
        page: ListPage[Any] = decode_body(request.what, answer.body, decoder)
        del answer
        if token and page.metadata.resource_version != version:
            raise GoneError(f"cannot {request.what}: it changed while it was read, again and again")
        version = page.metadata.resource_version
        found = page.items or []
        if convert is None:
            items += found
        else:
            items += (made for each in found if (made := convert(each)) is not None)
        if page.metadata.continue_token and (
            page.metadata.continue_token == token or len(items) > MOST_OBJECTS
        ):
            raise ApiError(f"cannot {request.what}: the list has no end")
        token = page.metadata.continue_token
        del found, page  # before the next page is there
        if not token:
            return Listing(items=items, resource_version=version)
