# SPDX-License-Identifier: Apache-2.0
"""What the operator's socket answers when it is asked for a link that signs a browser in."""

import getpass
import ipaddress
from collections.abc import Callable
from typing import Any

from pipecd_controlplane.auth.sign_in_links import LINK_PATH, SignInLinks
from pipecd_controlplane.ops.operator import AnswerOperator
from pipecd_model.errors import StateError


def answer_with_links(
    links: SignInLinks, read_address: Callable[[], str], tls: object | None
) -> AnswerOperator:
    """Returns what answers requests for links; `read_address` tells where the server listens."""

    async def answer(project_id: str) -> dict[str, Any]:
        address = find_loopback(read_address())
        scheme = "http" if tls is None else "https"
        secret = await links.make(project_id, _read_user_name())
        return {"url": f"{scheme}://{address}{LINK_PATH}#{secret}"}

    return answer


def find_loopback(address: str) -> str:
    """Returns the address under which a browser on this machine reaches a server.

    Raises StateError when it listens elsewhere only.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if host == "localhost":
        return address
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        parsed = None
    if parsed is not None and parsed.is_unspecified:
        return f"127.0.0.1:{port}" if parsed.version == 4 else f"[::1]:{port}"
    if parsed is None or not parsed.is_loopback:
        raise StateError(
            f"the server listens on {address}, where a sign-in link does not work",
            hint="it works on a loopback address only; sign in in another way",
        )
    return address


def _read_user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "operator"  # a user without a name
