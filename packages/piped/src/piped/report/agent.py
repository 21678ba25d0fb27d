# SPDX-License-Identifier: Apache-2.0
"""Reports about piped itself: its metadata at the start, and its metrics every minute."""

import asyncio
from collections.abc import Callable
from typing import Final

from pipecd_model.config import PipedConfig
from pipecd_model.config.mask import to_masked_yaml
from pipecd_model.errors import DeniedError, PipecdError, UnauthenticatedError
from pipecd_runtime.logs import logger
from pipecd_wire.model.common_pb2 import ApplicationGitRepository
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.pipedservice import service_pb2 as pb
from piped.controlplane.client import ControlPlane

log = logger(__name__)

STAT_INTERVAL_SECONDS: Final = 60.0
"""Seconds between two reports; the control plane shows a piped as offline after twice as long."""


async def introduce(
    control: ControlPlane, config: PipedConfig, *, version: str, public_key: str = ""
) -> None:
    """Report the metadata of this piped; retries with backoff until it is accepted.

    Raises UnauthenticatedError or DeniedError when the control plane refuses this piped.
    `public_key` encrypts secrets that this piped can decrypt.
    """
    encryption = Piped.SecretEncryption(type="NONE")
    if public_key:
        encryption = Piped.SecretEncryption(type="KEY_PAIR", public_key=public_key)
    try:
        answer = await control.call_until_accepted(
            control.service.ReportPipedMeta,
            pb.ReportPipedMetaRequest(
                version=version,
                config=to_masked_yaml(config),
                repositories=[
                    ApplicationGitRepository(
                        id=each.repo_id, remote=each.remote, branch=each.branch
                    )
                    for each in config.repositories
                ],
                plugins=[
                    Piped.Plugin(
                        name=plugin.name,
                        deploy_targets=[target.name for target in plugin.deploy_targets],
                    )
                    for plugin in config.plugins
                ],
                secret_encryption=encryption,
            ),
        )
    except (UnauthenticatedError, DeniedError) as error:
        raise type(error)(
            f"the control plane at {config.api_address} refuses this piped: {error}",
            hint="check projectID, pipedID and the piped key",
        ) from None
    log.info("piped.connected", address=config.api_address, name=answer.name)


class Stats:
    """Reports piped's metrics every minute, which also shows that piped is alive."""

    def __init__(self, control: ControlPlane, metrics: Callable[[], str]) -> None:
        """`metrics` returns all metrics in Prometheus' text format."""
        self._control = control
        self._metrics = metrics

    async def run(self) -> None:
        """Report at each interval until cancelled; a failed report is only logged."""
        while True:
            try:
                await self._control.call(
                    self._control.service.ReportStat,
                    pb.ReportStatRequest(piped_stats=self._metrics().encode()),
                )
            except PipecdError as error:
                log.debug("piped.stat_not_told", reason=str(error))
            await asyncio.sleep(STAT_INTERVAL_SECONDS)
