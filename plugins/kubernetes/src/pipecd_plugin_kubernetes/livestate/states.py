# SPDX-License-Identifier: Apache-2.0
"""The live states of all clusters of a plugin: one watch for each cluster, begun when it is needed.

Two deploy targets that are the same cluster share its watch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipecd_plugin_kubernetes.client import ApiResource, Cluster
from pipecd_plugin_kubernetes.config import KubernetesTarget
from pipecd_plugin_kubernetes.livestate.cluster_watch import FIRST_LIST_SECONDS, ClusterWatch
from pipecd_plugin_kubernetes.livestate.kind_watch import FIRST_PAUSE_SECONDS
from pipecd_plugin_kubernetes.livestate.records import LiveObject
from pipecd_plugin_kubernetes.livestate.tree import build_tree, make_cluster_problem
from pipecd_sdk import DeployTarget, LiveSnapshot, WatchContext

UNWATCHED: Final = "the cluster does not let it be listed and watched, or it is excluded"
_POD_KINDS: Final = frozenset({("", "Pod"), ("apps", "ReplicaSet")})
_POD_OWNERS: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveView:
    """What is known of an application in one cluster, for those who compare it with git."""

    watch: ClusterWatch
    application_id: str

    @property
    def managed(self) -> Sequence[LiveObject]:
        """What the application has applied, as it is known now."""
        return self.watch.store.find_managed(self.application_id)

    def find(self, uid: str) -> LiveObject | None:
        """Returns an object of the application, what its objects own included; else None."""
        found = self.watch.store.walk(self.application_id)
        return next((each for each in found if each.uid == uid), None)

    @property
    def problem(self) -> str:
        """Why nothing is known of the cluster; empty when it answers."""
        return self.watch.problem

    def find_problem(self, group: str, kind: str) -> str:
        """Returns why not all objects of a kind are known; empty when they are."""
        resource = self.watch.find_kind(group, kind)
        return UNWATCHED if resource is None else self.watch.problems.get(resource, "")


class LiveStates:
    """Watches clusters, and reads the state of applications from what the watches have kept."""

    def __init__(
        self,
        connect: Callable[[DeployTarget], Awaitable[Cluster]],
        *,
        first_list_seconds: float = FIRST_LIST_SECONDS,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        """`connect` returns the client of a deploy target, the same one each time."""
        self._connect = connect
        self._first_list_seconds = first_list_seconds
        self._first_pause_seconds = first_pause_seconds
        self._watches: dict[tuple[Any, ...], ClusterWatch] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._announce: Callable[[str], None] = lambda _: None
        self._asked: set[str] = set()
        self._kinds: dict[str, frozenset[tuple[str, str]]] = {}

    async def watch(self, ctx: WatchContext) -> None:
        """Keeps all watches going until cancelled; a change of what was asked for is announced."""
        self._announce = ctx.announce
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for watch in self._watches.values():
                    watch.start(tasks)
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    async def read(self, application_id: str, target: DeployTarget) -> LiveSnapshot:
        """Returns what runs of an application on a deploy target.

        What cannot be read is said by a resource of its own: it never looks like health.
        """
        self._asked.add(application_id)
        watch = self._open(target)
        await watch.wait_ready(limit_seconds=self._first_list_seconds)
        resources = build_tree(
            watch.store.walk(application_id), self._find_problems(application_id, watch)
        )
        if watch.problem:
            resources.insert(0, make_cluster_problem(target.name, watch.problem))
        view = LiveView(watch=watch, application_id=application_id)
        return LiveSnapshot(resources=resources, data=view)

    async def want(self, view: LiveView, kinds: Iterable[tuple[str, str]]) -> None:
        """Watches the kinds (API version and kind) of an application's manifests too.

        Returns when they are known. The tree gains what they own, so the application is announced.
        """
        named = frozenset(kinds)
        self._kinds[view.application_id] = frozenset(
            (api_version.rpartition("/")[0], kind) for api_version, kind in named
        )
        if view.watch.want(named):
            before = len(view.watch.store)
            await view.watch.wait_ready(limit_seconds=self._first_list_seconds)
            if len(view.watch.store) != before:
                self._announce(view.application_id)

    def _open(self, target: DeployTarget) -> ClusterWatch:
        config: KubernetesTarget = target.config
        key = (
            config.master_url,
            config.kube_config_path,
            config.kube_context,
            repr(config.app_state_informer),
        )
        if key not in self._watches:
            self._watches[key] = ClusterWatch(
                lambda: self._connect(target),
                informer=config.app_state_informer,
                on_change=self._on_change,
                first_pause_seconds=self._first_pause_seconds,
            )
            if self._tasks is not None:
                self._watches[key].start(self._tasks)
        return self._watches[key]

    def _on_change(self, applications: set[str]) -> None:
        for application_id in applications & self._asked:
            self._announce(application_id)

    def _find_problems(self, application_id: str, watch: ClusterWatch) -> Mapping[ApiResource, str]:
        """Returns the unreadable kinds that concern an application; others are in the log."""
        kinds = self._kinds.get(application_id, frozenset())
        if any(kind in _POD_OWNERS for _, kind in kinds):
            kinds |= _POD_KINDS
        return {
            resource: reason
            for resource, reason in watch.problems.items()
            if (resource.group, resource.kind) in kinds
        }
