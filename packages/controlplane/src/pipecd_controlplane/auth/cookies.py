# SPDX-License-Identifier: Apache-2.0
"""The cookies of a browser, read from whatever it sends."""

from typing import Final

TOKEN: Final = "token"  # noqa: S105 - the name of a cookie, upstream's
STATE: Final = "state"
ERROR: Final = "error"


def cookie(header: str, name: str) -> str:
    """The value of one cookie; empty when it is not there. Parts that are no cookies are nothing.

    Of two with one name the first counts: browsers put the one with the longer path there.
    """
    for part in header.split(";"):
        key, equals, value = part.strip().partition("=")
        if equals and key == name:
            return value.strip().strip('"')
    return ""
