# SPDX-License-Identifier: Apache-2.0
"""Why a plugin refused a call, as a message beside the status and its text."""

from typing import Final

from google.protobuf.message import DecodeError

from pipecd_wire.headers import REFUSAL_TRAILER
from pipecd_wire.pipecd.plugin.plugin_pb2 import Refusal
from pipecd_wire.rpc import CallError, StatusError

STOPPING_TEXT: Final = "plugin is stopping"
"""The message of a plugin that is stopping; upstream's plugins send it without a detail."""


def make_stopping_error() -> StatusError:
    """Returns the refusal of a plugin that is stopping: the caller should call its next process."""
    detail = Refusal(reason=Refusal.STOPPING).SerializeToString()
    return StatusError("UNAVAILABLE", STOPPING_TEXT, trailers=((REFUSAL_TRAILER, detail),))


def is_stopping(error: CallError) -> bool:
    """Returns whether a call failed because the plugin is stopping.

    The detail counts; the text counts from a plugin that sends none.
    """
    if error.status != "UNAVAILABLE":
        return False
    reason = find_reason(error)
    if reason is None:
        return error.message.startswith(STOPPING_TEXT)
    return reason == Refusal.STOPPING


def find_reason(error: CallError) -> "Refusal.Reason.ValueType | None":
    """Returns why the plugin refused a call, None when it sent no detail that can be read."""
    detail = dict(error.trailers).get(REFUSAL_TRAILER)
    if detail is None:
        return None
    try:
        return Refusal.FromString(detail).reason
    except DecodeError:
        return None
