# SPDX-License-Identifier: Apache-2.0
"""A cluster that runs while a block does: `with running_cluster() as cluster`.

Its API server, controllers, scheduler and garbage collector are Kubernetes' own. Its nodes are
simulated: no container runs, pods do what `stages` says, and logs are what a test gives them.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipecd_test_support.kubernetes.api import WAIT_SECONDS, Api, Object
from pipecd_test_support.kubernetes.kubeconfigs import write_kubeconfig
from pipecd_test_support.kubernetes.packages import find_tools
from pipecd_test_support.kubernetes.stages import ANNOTATION

END_SECONDS: Final = 30.0
"""How long a cluster may take to end, on the slowest machine."""
LOG_LINES: Final = ("starting", "listening")
PREVIOUS_LOG_LINES: Final = ("starting", "panic: the configuration is missing")


class StartError(Exception):
    """The cluster does not start; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCluster:
    """A running cluster."""

    folder: Path
    server: str
    """The address of the API server, with `https://`."""
    api: Api
    """An administrator's."""

    @property
    def kubeconfig(self) -> Path:
        """An administrator's, with a certificate."""
        return self.folder / "kubeconfig"

    @property
    def authority(self) -> Path:
        """The certificate that signed the API server's."""
        return self.folder / "ca.pem"

    def write_kubeconfig(
        self,
        path: Path,
        *,
        token: str = "",
        user: dict[str, Any] | None = None,
        server: str = "",
        namespace: str = "default",
    ) -> Path:
        """Write a kubeconfig for a token or a user entry, at another address when one is given."""
        return write_kubeconfig(
            path,
            server=server or self.server,
            authority=self.authority,
            token=token,
            user=user,
            namespace=namespace,
        )

    def connect(self, token: str) -> Api:
        """Return the API with the rights of a token; the caller closes it."""
        return Api(self.server, authority=self.authority, token=token)

    def read_part_log(self, part: str) -> str:
        """Return what a part has said, e.g. `kube-apiserver`."""
        return (self.folder / f"{part}.log").read_text(errors="replace")

    def run_kubectl(self, *words: str, stdin: str = "") -> str:
        """Return the output of a command of kubectl. Raises CalledProcessError."""
        return subprocess.run(
            [str(find_tools().kubectl), f"--kubeconfig={self.kubeconfig}", *words],
            input=stdin,
            check=True,
            capture_output=True,
            text=True,
            env={"HOME": str(self.folder), "PATH": os.environ.get("PATH", "")},
        ).stdout

    @contextmanager
    def making_namespace(self, prefix: str = "test") -> Iterator["Namespace"]:
        """Make a namespace for a block, and delete it after; its objects go in the background."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        made = Namespace(cluster=self, name=name)
        try:
            # Pods are refused until the namespace has it.
            account = ("v1", "ServiceAccount", "default", name)
            self.api.wait(*account, is_right=lambda found: found is not None)
            made.set_log(LOG_LINES, previous=PREVIOUS_LOG_LINES)
            yield made
        finally:
            self.api.delete("v1", "Namespace", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace of a test's own."""

    cluster: RealCluster
    name: str

    @property
    def api(self) -> Api:
        return self.cluster.api

    def get(self, api_version: str, kind: str, name: str) -> Object | None:
        """Return an object of this namespace; None when it is not there."""
        return self.api.get(api_version, kind, name, self.name)

    def find_all(self, api_version: str, kind: str, *, labels: str = "") -> list[Object]:
        """Return all objects of a kind in this namespace."""
        return self.api.find_all(api_version, kind, self.name, labels=labels)

    def apply(self, body: Mapping[str, Any], *, manager: str = "test") -> Object:
        """Apply an object in this namespace."""
        metadata = {**body["metadata"], "namespace": self.name}
        return self.api.apply({**body, "metadata": metadata}, manager=manager)

    def wait_workload(self, kind: str, name: str, *, limit_seconds: float = WAIT_SECONDS) -> Object:
        """Wait until a Deployment, StatefulSet, ReplicaSet or DaemonSet is rolled out."""
        return self.api.wait(
            "apps/v1",
            kind,
            name,
            self.name,
            is_right=lambda found: is_rolled_out(kind, found),
            limit_seconds=limit_seconds,
        )

    def wait_pods(self, number: int, *, labels: str = "", reason: str = "") -> list[Object]:
        """Wait until so many pods are there, each ready, or waiting for this reason."""
        return self.api.wait_all(
            "v1",
            "Pod",
            self.name,
            labels=labels,
            are_right=lambda pods: (
                len(pods) == number
                and all(is_waiting(pod, reason) if reason else is_ready(pod) for pod in pods)
            ),
        )

    def set_behaviour(self, behaviour: str, *, labels: str = "") -> list[str]:
        """Make the pods that are there behave so (see `stages`); return their names."""
        change = {"metadata": {"annotations": {ANNOTATION: behaviour}}}
        names = [pod["metadata"]["name"] for pod in self.find_all("v1", "Pod", labels=labels)]
        for name in names:
            self.api.patch("v1", "Pod", name, self.name, change)
        return names

    def set_log(
        self,
        lines: Sequence[str],
        *,
        previous: Sequence[str] = (),
        container: str = "",
    ) -> None:
        """Make this the log of all containers of this namespace, or of those with a name."""
        path = self.api.find_path("kwok.x-k8s.io/v1alpha1", "ClusterLogs", name=self.name)
        found = self.api.get("kwok.x-k8s.io/v1alpha1", "ClusterLogs", self.name)
        logs = [
            each
            for each in (found or {}).get("spec", {}).get("logs", ())
            if each.get("containers", []) != ([container] if container else [])
        ]
        log: dict[str, Any] = {"containers": [container]} if container else {}
        logs.append(
            {
                **log,
                "logsFile": str(self._write_log(container, "now", lines)),
                "previousLogsFile": str(self._write_log(container, "previous", previous)),
            }
        )
        self.api.request(
            "PATCH",
            path,
            {
                "apiVersion": "kwok.x-k8s.io/v1alpha1",
                "kind": "ClusterLogs",
                "metadata": {"name": self.name},
                "spec": {"selector": {"matchNamespaces": [self.name]}, "logs": logs},
            },
            content_type="application/apply-patch+yaml",
            fieldManager="test",
            force="true",
        )

    def _write_log(self, container: str, which: str, lines: Sequence[str]) -> Path:
        """Write a file as a container engine does."""
        path = self.cluster.folder / "logs" / self.name / f"{container or 'all'}.{which}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        moment = "2026-01-01T00:00:00.000000000Z"
        path.write_text("".join(f"{moment} stdout F {line}\n" for line in lines))
        return path


def is_ready(pod: Object) -> bool:
    """Tell whether a pod is ready."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_waiting(pod: Object, reason: str) -> bool:
    """Tell whether a container of a pod, or its scheduling, waits for this reason."""
    status = pod.get("status", {})
    waiting = [
        each.get("state", {}).get("waiting", {}).get("reason")
        for each in status.get("containerStatuses", ())
    ]
    conditions = [each.get("reason") for each in status.get("conditions", ())]
    return reason in waiting + conditions


def is_rolled_out(kind: str, workload: Object | None) -> bool:
    """Tell whether a workload has only pods of its newest template, and all of them are ready."""
    if workload is None:
        return False
    status = workload.get("status", {})
    if status.get("observedGeneration", 0) < workload["metadata"]["generation"]:
        return False
    if kind == "DaemonSet":
        wanted = status["desiredNumberScheduled"]
        counts = [status.get("updatedNumberScheduled", 0), status.get("numberReady", 0)]
    else:
        wanted = workload["spec"].get("replicas", 1)
        counts = [status.get("replicas", 0), status.get("readyReplicas", 0)]
        if kind != "ReplicaSet":
            counts.append(status.get("updatedReplicas", 0))
    return all(count == wanted for count in counts)


@contextmanager
def running_cluster() -> Iterator[RealCluster]:
    """Run a cluster. Raises StartError when it does not start."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    keeper = subprocess.Popen(
        [sys.executable, "-m", "pipecd_test_support.kubernetes.keeper", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        facts = json.loads(keeper.stdout.readline() or '{"error": "its keeper ended"}')
        if "error" in facts:
            raise StartError(facts["error"])
        api = Api(
            facts["server"],
            authority=folder / "ca.pem",
            certificate=(folder / "admin.pem", folder / "admin.key"),
        )
        try:
            yield RealCluster(folder=folder, server=facts["server"], api=api)
        finally:
            api.close()
    finally:
        keeper.stdin.close()
        keeper.stdout.close()
        try:
            keeper.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
            raise
        shutil.rmtree(folder, ignore_errors=True)
