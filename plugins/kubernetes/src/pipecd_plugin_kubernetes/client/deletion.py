# SPDX-License-Identifier: Apache-2.0
"""Deletions: what counts as deleted, and what as not there."""

from pipecd_plugin_kubernetes.client.caller import Caller, count_retries
from pipecd_plugin_kubernetes.client.errors import ConflictError, NotFoundError
from pipecd_plugin_kubernetes.client.requests import Request


async def send_deletion(caller: Caller, request: Request) -> bool:
    """Returns whether the object was there; an object with another uid is not the one."""
    counting, retries = count_retries(caller)
    try:
        await counting.call(request)
    except NotFoundError:
        # Not there at the second attempt: the first one did it, and its answer was lost.
        return bool(retries)
    except ConflictError as error:
        if error.is_precondition:
            return bool(retries)
        raise
    return True
