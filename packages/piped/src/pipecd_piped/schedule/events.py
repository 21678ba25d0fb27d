# SPDX-License-Identifier: Apache-2.0
"""The events that a successful deployment registers. Pure."""

from pipecd_model.config import ApplicationConfig
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.push.push_pb2 import RegisterEventRequest


def build_events(
    config: ApplicationConfig, deployment: Deployment
) -> tuple[list[RegisterEventRequest], list[str]]:
    """Returns the events of `postSync.events`, and a sentence for each that has no data."""
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
        if not data.strip():
            faults.append(f"the event {event.name!r} was not registered: its data is empty")
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
