# SPDX-License-Identifier: Apache-2.0
"""The events that a successful deployment registers. Pure."""

from typing import Final

from pipecd_model.config import ApplicationConfig
from pipecd_model.event_limits import list_event_faults
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.push.push_pb2 import RegisterEventRequest

SHOWN: Final = 80
"""Characters of an event's name in a sentence."""


def build_events(
    config: ApplicationConfig, deployment: Deployment
) -> tuple[list[RegisterEventRequest], list[str]]:
    """Returns the events of `postSync.events`, and a sentence for each that cannot be registered.

    Lint says what can be known before; the values that data names are known only now.
    """
    after = config.post_sync
    values = {
        "application": deployment.application_name,
        "commit": deployment.trigger.commit.hash,
        "deployment": deployment.id,
        "version": deployment.versions[0].version if deployment.versions else "",
    }
    events, faults = [], []
    for number, event in enumerate(after.events if after is not None else ()):
        data = event.render(values)
        found = "its data is empty" if not data.strip() else ""
        for field, message in list_event_faults(event.name, data, event.labels):
            found = found or f"its {field} {message}"
        if found:
            faults.append(f"the event {event.name[:SHOWN]!r} was not registered: {found}")
            continue
        events.append(
            RegisterEventRequest(
                deployment_id=deployment.id,
                number=number,
                name=event.name,
                data=data,
                labels=event.labels,
            )
        )
    return events, faults
