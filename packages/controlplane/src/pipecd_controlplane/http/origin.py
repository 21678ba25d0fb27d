# SPDX-License-Identifier: Apache-2.0
"""Refuses gRPC-Web calls that the page of another site makes with the cookie of a user."""

from starlette.requests import Request

from pipecd_controlplane.http.senders import Sender, sender_of
from pipecd_wire.rpc import StatusError
from pipecd_wire.rpc.web import Scope, Screen


def screen_cookies(public_url: str) -> Screen:
    """Returns a check for the head of each call. A call without a cookie passes: it is harmless."""

    def screen(scope: Scope) -> None:
        request = Request(scope)
        if "cookie" not in request.headers:
            return
        if sender_of(request, public_url) is Sender.OTHER_PAGE:
            raise StatusError(
                "PERMISSION_DENIED",
                "the request comes from another site (if it is yours, set spec.address to its URL)",
            )

    return screen
