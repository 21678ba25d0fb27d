# SPDX-License-Identifier: Apache-2.0
"""How many descriptors this process may have, and what is left for connections."""

import resource
from pathlib import Path

from pipecd_controlplane.http.connections import GRPC_DESCRIPTORS
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_model.errors import ConfigError
from pipecd_runtime.logs import logger

log = logger(__name__)

FEW = 1000
"""Connections of gRPC: with room for fewer a warning is logged, even if none were configured."""

LEAST = 48
"""Descriptors for connections that a server needs at least."""


def raise_limit() -> None:
    """Raises the soft limit of descriptors of this process to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("front.descriptors_not_raised", soft=soft, hard=hard, error=str(error))


def highest_descriptor(reserve: int) -> int:
    """Returns the first number that belongs to the reserve; ConfigError when little is below it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 1_000_000 if soft == resource.RLIM_INFINITY else soft
    if limit - reserve < LEAST:
        raise ConfigError(
            f"{limit} descriptors are too few beside spec.limits.descriptorReserve {reserve}",
            hint=f"allow more (ulimit -n), at least {reserve + LEAST}",
        )
    return limit - reserve


def room_for_connections(limits: FrontLimitsConfig, highest: int) -> int:
    """Returns how many descriptors connections may have; logs a warning when those are few."""
    room = max(highest - sum(1 for _ in Path("/dev/fd").iterdir()), LEAST)
    possible = room // GRPC_DESCRIPTORS
    is_asked_for = limits.max_connections != FrontLimitsConfig().max_connections
    if possible < (limits.max_connections if is_asked_for else FEW):
        log.warning(
            "front.few_descriptors",
            message=f"spec.limits.maxConnections {limits.max_connections} has no effect: there are"
            f" descriptors for {possible} connections of gRPC, or {room} of HTTP",
            hint="allow more (ulimit -n)",
        )
    return room
