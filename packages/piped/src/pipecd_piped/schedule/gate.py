# SPDX-License-Identifier: Apache-2.0
"""Asks the rules of the project and of the application whether a deployment may go on now.

The rules themselves are pure functions of `pipecd_model.gate`; here is what they are asked with:
the state that the control plane has pushed, and the clock.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from pipecd_model import gate
from pipecd_model.gate import Blocker
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.control.control_pb2 import Override


class DeploymentGate:
    """What stands before a deployment, and before each of its forward stages."""

    def __init__(self, state: ControlPlaneState, clock: Callable[[], float] = time.time) -> None:
        self.state = state
        self.clock = clock
        self.also: list[Callable[[Deployment], Blocker | None]] = []
        """Further reasons for which a deployment may not begin; each is asked in order."""

    def find_blocker(self, deployment: Deployment) -> Blocker | None:
        """Returns what a deployment waits for before it may begin; None when it may."""
        blocker = gate.find_blocker(
            deployment,
            labels=deployment.labels,
            control=self.state.control(deployment.application_id),
            rules=self.state.rules,
            record=self.state.record(deployment.id),
            now=datetime.fromtimestamp(self.clock(), UTC),
        )
        if blocker is not None:
            return blocker
        return next(filter(None, (find(deployment) for find in self.also)), None)

    def find_pause(self, deployment: Deployment) -> Blocker | None:
        """Returns what the next forward stage of a deployment waits for; None when it may begin."""
        return gate.find_pause(rules=self.state.rules, record=self.state.record(deployment.id))

    def is_roll_back(self, deployment: Deployment) -> bool:
        """Returns whether a person brings the application back with this deployment."""
        return gate.is_roll_back(self.state.record(deployment.id))

    def find_override(self, deployment: Deployment) -> Override | None:
        """Returns the override that a person gave this deployment; None when nobody did."""
        record = self.state.record(deployment.id)
        return record.override if record.HasField("override") else None
