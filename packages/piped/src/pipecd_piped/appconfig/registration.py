# SPDX-License-Identifier: Apache-2.0
"""Register applications at the control plane that were found in git, where the config selects them.

Off unless the piped config has `autoRegistration`. What the control plane refuses (a person has
deleted it, its name is taken) is logged once with the reason, stays among the suggestions, and is
asked for again when something has changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipecd_model import paths
from pipecd_model.config import ApplicationConfig, AutoRegistrationConfig, PluginConfig
from pipecd_model.errors import PipecdError
from pipecd_piped.controlplane.client import UnknownRpcError
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger
from pipecd_wire.model.common_pb2 import ApplicationInfo
from pipecd_wire.model.deployment_pb2 import DeployTargets
from pipecd_wire.pipecd.push import push_pb2 as pb
from pipecd_wire.rpc import validation

log = logger(__name__)

AT_ONCE: Final = 100
"""Applications of one request; the control plane takes no more."""

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""The backoff before a request that failed is repeated."""

_DONE: Final = frozenset(
    {pb.RegistrationOutcome.REGISTERED, pb.RegistrationOutcome.REGISTERED_BEFORE}
)

Register = Callable[[pb.RegisterApplicationsRequest], Awaitable[pb.RegisterApplicationsResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregistered:
    """An application file that no registered application has."""

    info: ApplicationInfo
    file: str
    """The path of the file."""
    config: ApplicationConfig


class NoTargetError(PipecdError):
    """Where the application is deployed to cannot be told from its file."""


class Registrar:
    """Registers what is selected, one request at a time."""

    def __init__(
        self,
        config: AutoRegistrationConfig,
        plugins: Iterable[PluginConfig],
        register: Register,
    ) -> None:
        """`register` calls the control plane; it raises PipecdError."""
        self._config = config
        self._targets = {
            plugin.name: [target.name for target in plugin.deploy_targets] for plugin in plugins
        }
        self._register = register
        self._wanted: list[pb.FoundApplication] = []
        self._told: dict[tuple[str, str, str], str] = {}
        """By repository, path and file: what was last logged of it."""
        self._left_out = 0
        self._wake = asyncio.Event()

    def offer(self, found: Sequence[Unregistered], *, registered: int) -> None:
        """Take the files that no application has, and the number of those that have one."""
        wanted = []
        for each in found:
            if not is_selected(self._config, each):
                continue
            try:
                wanted.append(build_found(each, self._targets))
            except NoTargetError as error:
                self._tell_once(_name(each.info), each.info.name, error.with_hint())
        room = max(0, self._config.limit - registered)
        self._report_left_out(len(wanted) - room)
        self._wanted = [each for each in wanted[:room] if _can_be_sent(each)]
        if self._wanted:
            self._wake.set()

    async def run(self) -> None:
        """Register what is offered, until cancelled."""
        backoff = Backoff(first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS)
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                for some in _portions(self._wanted):
                    await self._register_some(some)
            except UnknownRpcError:
                log.warning(
                    "application.not_registered",
                    reason="the control plane does not let agents register applications",
                )
                return
            except PipecdError as error:
                log.warning("application.not_registered", reason=str(error))
                await asyncio.sleep(backoff.next_pause_seconds())
                self._wake.set()
            else:
                backoff.reset()

    async def _register_some(self, some: list[pb.FoundApplication]) -> None:
        response = await self._register(pb.RegisterApplicationsRequest(applications=some))
        for each, outcome in zip(some, response.outcomes, strict=False):
            key = (each.repository_id, each.path, each.config_filename)
            if outcome.kind in _DONE:
                if self._told.get(key) != outcome.application_id:
                    log.info(
                        "application.registered",
                        application=each.name,
                        application_id=outcome.application_id,
                        repository=each.repository_id,
                        path=each.path,
                    )
                self._told[key] = outcome.application_id
            else:
                self._tell_once(key, each.name, outcome.sentence)

    def _tell_once(self, key: tuple[str, str, str], name: str, reason: str) -> None:
        if self._told.get(key) != reason:
            self._told[key] = reason
            log.warning(
                "application.not_registered",
                application=name,
                repository=key[0],
                path=key[1],
                file=key[2],
                reason=reason,
            )

    def _report_left_out(self, left_out: int) -> None:
        left_out = max(0, left_out)
        if left_out and left_out != self._left_out:
            log.warning(
                "application.too_many_found",
                left_out=left_out,
                reason=f"autoRegistration.limit is {self._config.limit}: raise it, or register"
                " them by hand",
            )
        self._left_out = left_out


def is_selected(config: AutoRegistrationConfig, found: Unregistered) -> bool:
    """Returns whether the config selects this file. Pure."""
    if found.config.kind != "Application":
        return False  # what older kinds need beside the file only a person can say
    return (
        config.labels.items() <= found.config.labels.items()
        and (not config.repositories or found.info.repo_id in config.repositories)
        and (not config.paths or paths.matches(config.paths, found.file))
    )


def build_found(found: Unregistered, targets: Mapping[str, Sequence[str]]) -> pb.FoundApplication:
    """Returns the request for one application; `targets` are those of this piped, by plugin.

    The deploy targets are those that the file names, else the only one of each plugin that it uses.
    Raises NoTargetError when there are several to choose from. Pure.
    """
    chosen: dict[str, Sequence[str]] = dict(found.config.deploy_targets)
    for plugin in {*found.config.plugins, *chosen}:
        if plugin not in targets:
            raise NoTargetError(
                f"this piped has no plugin {plugin!r}", hint="select the file by another piped"
            )
    for plugin in found.config.plugins:
        known = targets[plugin]
        if plugin in chosen or not known:
            continue
        if len(known) > 1:
            raise NoTargetError(
                f"the plugin {plugin!r} has {len(known)} deploy targets",
                hint=f"name one in the file: deployTargets: {{{plugin}: [{known[0]}]}}",
            )
        chosen[plugin] = known
    info = found.info
    return pb.FoundApplication(
        name=info.name,
        repository_id=info.repo_id,
        path=info.path,
        config_filename=info.config_filename,
        description=info.description,
        labels=info.labels,
        deploy_targets_by_plugin={
            plugin: DeployTargets(deploy_targets=names) for plugin, names in chosen.items()
        },
    )


def _name(info: ApplicationInfo) -> tuple[str, str, str]:
    return (info.repo_id, info.path, info.config_filename)


def _can_be_sent(found: pb.FoundApplication) -> bool:
    """Returns whether it passes validation: one that does not makes the whole request refused."""
    return validation.check(found) is None


def _portions(found: Sequence[pb.FoundApplication]) -> Iterator[list[pb.FoundApplication]]:
    for start in range(0, len(found), AT_ONCE):
        yield list(found[start : start + AT_ONCE])
