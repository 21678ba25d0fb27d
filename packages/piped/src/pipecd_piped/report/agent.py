# SPDX-License-Identifier: Apache-2.0
"""Reports about piped itself: its metadata at the start, and its metrics every minute."""

import asyncio
from collections.abc import Callable
from typing import Final

from pipecd_model.config import PipedConfig
from pipecd_model.config.mask import to_masked_yaml
from pipecd_model.errors import DeniedError, PipecdError, UnauthenticatedError
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_runtime.logs import logger
from pipecd_wire.model.common_pb2 import ApplicationGitRepository
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.pipedservice import service_pb2 as pb

log = logger(__name__)

STAT_INTERVAL_SECONDS: Final = 60.0
"""Seconds between two reports; the control plane shows a piped as offline after twice as long."""


class PipedMeta:
    """Reports what this piped is: its version, configuration, repositories and plugins."""

    def __init__(
        self, control: ControlPlane, config: PipedConfig, *, version: str, public_key: str = ""
    ) -> None:
        """`public_key` encrypts secrets that this piped can decrypt."""
        self._control = control
        self._config = config
        self._request = _build_request(config, version, public_key)

    async def introduce(self) -> None:
        """Report once at the start; retries with backoff until it is accepted.

        Raises UnauthenticatedError or DeniedError when the control plane refuses this piped.
        """
        address = self._config.api_address
        try:
            answer = await self._report()
        except (UnauthenticatedError, DeniedError) as error:
            raise type(error)(
                f"the control plane at {address} refuses this piped: {error}",
                hint="check projectID, pipedID and the piped key",
            ) from None
        log.info("piped.connected", address=address, name=answer.name)

    async def report_as_holder(self) -> None:
        """Report under the lease, and then do nothing until cancelled: the lease is lost.

        The control plane keeps what the holder says; the introduction of an instance that waited
        for the lease has changed nothing.
        """
        try:
            await self._report()
        except PipecdError as error:
            log.warning("piped.meta_not_delivered", reason=str(error))
        await asyncio.Event().wait()

    async def _report(self) -> pb.ReportPipedMetaResponse:
        return await self._control.call_until_accepted(
            self._control.service.ReportPipedMeta, self._request
        )


def _build_request(config: PipedConfig, version: str, public_key: str) -> pb.ReportPipedMetaRequest:
    encryption = Piped.SecretEncryption(type="NONE")
    if public_key:
        encryption = Piped.SecretEncryption(type="KEY_PAIR", public_key=public_key)
    return pb.ReportPipedMetaRequest(
        version=version,
        config=to_masked_yaml(config),
        repositories=[
            ApplicationGitRepository(id=each.repo_id, remote=each.remote, branch=each.branch)
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
    )


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
                log.debug("piped.stat_not_delivered", reason=str(error))
            await asyncio.sleep(STAT_INTERVAL_SECONDS)
