# SPDX-License-Identifier: Apache-2.0
"""Judges new deployments of agents that know neither windows nor freezes: upstream's.

Agents of ours create a deployment, and let it wait.
"""

from datetime import UTC, datetime

from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model import gate
from pipecd_model.errors import StateError
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.control import control_pb2 as pb


async def check_allowed(stores: Stores, agent: Agent, deployment: Deployment, now: Now) -> None:
    """Raises StateError when the rules forbid a deployment that its agent would begin at once."""
    if agent.lease_epoch is not None:
        return
    project_id = agent.project_id
    rules = await stores.rules.find(project_id, project_id)
    control = await stores.controls.find(project_id, deployment.application_id)
    blocker = gate.find_blocker(
        deployment,
        labels=deployment.labels,
        control=control.message if control is not None else pb.ApplicationControl(),
        rules=rules.message if rules is not None else pb.ProjectRules(),
        record=pb.DeploymentRecord(),
        now=datetime.fromtimestamp(now(), UTC),
    )
    if blocker is not None:
        raise StateError(blocker.sentence, hint=blocker.hint)
