# SPDX-License-Identifier: Apache-2.0
"""Asks the control plane when the deployments of chains may be planned.

A deployment of a later block waits in its queue until all blocks before its own have succeeded, and
is cancelled when one of them has not. The control plane sends the deployment again when a block is
over; upstream's does not, so the question is also repeated.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from pipecd_model.deployment import is_completed
from pipecd_model.errors import ConfigError, NotFoundError, PipecdError
from pipecd_model.gate import Blocker
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_runtime.logs import logger
from pipecd_wire.model.deployment_pb2 import DEPLOYMENT_PENDING, Deployment
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment
from pipecd_wire.pipedservice.service_pb2 import (
    InChainDeploymentPlannableRequest,
    InChainDeploymentPlannableResponse,
)

log = logger(__name__)

ASK_AGAIN_SECONDS: Final = 10.0
"""Until the question is repeated that nobody has announced an answer to."""


class AskPlannable(Protocol):
    """Asks the control plane whether a deployment may be planned now."""

    async def __call__(
        self, request: InChainDeploymentPlannableRequest
    ) -> InChainDeploymentPlannableResponse:
        """Returns the answer; raises PipecdError."""


class ChainTurns:
    """Knows which deployments of chains may begin; a part of the gate before deployments."""

    def __init__(
        self,
        state: ControlPlaneState,
        ask: AskPlannable,
        *,
        on_turn: Callable[[str], None],
        on_refused: Callable[[str, str], None],
        ask_again_seconds: float = ASK_AGAIN_SECONDS,
    ) -> None:
        """`on_turn` is given the application of a deployment that may begin.

        `on_refused` is given a deployment that never may, and why.
        """
        self._state = state
        self._ask = ask
        self._on_turn = on_turn
        self._on_refused = on_refused
        self._ask_again_seconds = ask_again_seconds
        self._asked: dict[str, asyncio.Event] = {}
        """By deployment that waits: set when it is worth to ask again."""
        self._plannable: set[str] = set()
        self._unasked: dict[str, Deployment] = {}
        self._came = asyncio.Event()

    def find_blocker(self, deployment: Deployment) -> Blocker | None:
        """Returns that a deployment waits for its chain; None when it may begin."""
        if (
            not deployment.deployment_chain_id
            or deployment.deployment_chain_block_index == 0
            or deployment.status != DEPLOYMENT_PENDING
            or deployment.id in self._plannable
        ):
            return None
        if deployment.id not in self._asked and deployment.id not in self._unasked:
            self._unasked[deployment.id] = deployment
            self._came.set()
        block = deployment.deployment_chain_block_index
        return Blocker(
            cause=QueuedDeployment.CHAIN,
            sentence=f"it is in block {block} of a chain, and an earlier block is not over",
            hint="it begins when all earlier blocks have succeeded",
        )

    async def run(self) -> None:
        """Ask for every deployment that waits, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_state(), name="chains")
            while True:
                await self._came.wait()
                self._came.clear()
                for deployment in self._unasked.values():
                    self._asked[deployment.id] = asyncio.Event()
                    tasks.create_task(self._wait_turn(deployment), name=f"chain {deployment.id}")
                self._unasked.clear()

    async def _follow_state(self) -> None:
        async for change in self._state.changes():
            for deployment in change.deployments:
                if deployment.id in self._asked:
                    self._asked[deployment.id].set()
                if is_completed(deployment.status):
                    self._plannable.discard(deployment.id)
            if change.snapshot:
                self._plannable &= self._state.deployments.keys()

    async def _wait_turn(self, deployment: Deployment) -> None:
        changed = self._asked[deployment.id]
        request = InChainDeploymentPlannableRequest(
            deployment_id=deployment.id,
            deployment_chain_id=deployment.deployment_chain_id,
            deployment_chain_block_index=deployment.deployment_chain_block_index,
        )
        try:
            while True:
                changed.clear()
                if await self._is_settled(deployment, request):
                    return
                try:
                    async with asyncio.timeout(self._ask_again_seconds):
                        await changed.wait()
                except TimeoutError:
                    if deployment.id not in self._state.deployments:
                        return  # cancelled, or another instance's
        finally:
            del self._asked[deployment.id]

    async def _is_settled(
        self, deployment: Deployment, request: InChainDeploymentPlannableRequest
    ) -> bool:
        try:
            answer = await self._ask(request)
        except (ConfigError, NotFoundError) as error:
            self._on_refused(deployment.id, f"its chain cannot be asked for: {error}")
            return True
        except PipecdError as error:
            log.info("chain.not_asked", deployment=deployment.id, reason=str(error))
            return False
        if answer.plannable:
            self._plannable.add(deployment.id)
            self._on_turn(deployment.application_id)
        elif answer.cancel:
            self._on_refused(deployment.id, answer.cancel_reason or "its chain has ended")
        return answer.plannable or answer.cancel
