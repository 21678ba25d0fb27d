# SPDX-License-Identifier: Apache-2.0
"""Hold and pin of applications, as people read them."""

from pipecd_pipectl.client import Client
from pipecd_pipectl.times import format_age
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl
from pipecd_wire.rpc import CallError, call


async def read_control(client: Client, application_id: str) -> ApplicationControl:
    """Returns hold and pin of an application; empty at a control plane that has none."""
    request = api_pb2.GetApplicationControlRequest(application_id=application_id)
    try:
        return (await call(client.applications.GetApplicationControl, request)).control
    except CallError as error:
        if error.status != "UNIMPLEMENTED":
            raise
        return ApplicationControl(application_id=application_id)


async def read_controls(client: Client) -> dict[str, ApplicationControl]:
    """Returns those of all applications that have one, by their ids."""
    request = api_pb2.ListApplicationControlsRequest()
    try:
        found = (await call(client.applications.ListApplicationControls, request)).controls
    except CallError as error:
        if error.status != "UNIMPLEMENTED":
            raise
        return {}
    return {each.application_id: each for each in found}


def describe_hold(control: ApplicationControl, now: float) -> str:
    """Returns which commit is held and why; empty when none is."""
    if not control.HasField("hold"):
        return ""
    hold = control.hold
    since = format_age(hold.since.seconds, now)
    return (
        f"commit {hold.commit_hash[:7]}, since its deployment {hold.deployment_id[:8]} failed"
        + (f" {since}" if since else "")
    )


def describe_pinned(control: ApplicationControl, now: float) -> str:
    """Returns what an application is pinned to, by whom and why; empty when it is not."""
    if not control.HasField("pin"):
        return ""
    pin = control.pin
    since = format_age(pin.since.seconds, now)
    said = f": {pin.reason}" if pin.reason else ""
    return f"pinned to commit {pin.commit_hash[:7]} by {pin.by or 'somebody'} {since}{said}"
