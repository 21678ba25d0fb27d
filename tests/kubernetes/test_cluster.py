# SPDX-License-Identifier: Apache-2.0
"""The cluster of the tests is what they take it for: real, and its pods do what they are told."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipecd_test_support.kubernetes.api import Object, RefusedError
from pipecd_test_support.kubernetes.packages import Tools
from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster, is_ready
from pipecd_test_support.kubernetes.tokens import ADMIN_TOKEN, NOBODY_TOKEN
from pipecd_test_support.kubernetes.workloads import make_deployment


def test_a_deployment_becomes_ready(namespace: Namespace) -> None:
    """Its controllers, the scheduler and the nodes work together."""
    namespace.apply(make_deployment("web", replicas=3))
    namespace.wait_workload("Deployment", "web")
    pods = namespace.find_all("v1", "Pod", labels="app=web")
    assert [is_ready(pod) for pod in pods] == [True] * 3
    assert all(pod["spec"]["nodeName"] for pod in pods)


def test_a_crashing_container_says_why_and_what_it_said_last(namespace: Namespace) -> None:
    """A stage that fails must be able to tell which pod, why, and its last lines."""
    namespace.set_log(["up again"], previous=["begun", "panic: no database"], container="web")
    namespace.apply(make_deployment("web", image="registry.test:5000/web:2.0-crash"))
    pod = namespace.wait_pods(2, reason="CrashLoopBackOff")[0]
    (status,) = pod["status"]["containerStatuses"]
    assert status["restartCount"] == 3
    assert status["lastState"]["terminated"]["exitCode"] == 1
    log = f"/api/v1/namespaces/{namespace.name}/pods/{pod['metadata']['name']}/log"
    assert namespace.api.read_text(log, container="web") == "up again\n"
    last = namespace.api.read_text(log, container="web", previous="true", tailLines="1")
    assert last == "panic: no database\n"


def test_a_pod_that_fits_no_node_stays_pending(namespace: Namespace) -> None:
    """The scheduler says so, not a stage of ours."""
    namespace.apply(make_deployment("web", nodeSelector={"disk": "none"}))
    for pod in namespace.wait_pods(2, reason="Unschedulable"):
        assert pod["status"]["phase"] == "Pending"
        assert "nodeName" not in pod["spec"]


def test_a_missing_image_is_waited_for(namespace: Namespace) -> None:
    """The most usual of all failures of a rollout."""
    namespace.apply(make_deployment("web", image="web:missing"))
    for pod in namespace.wait_pods(2, reason="ImagePullBackOff"):
        assert pod["status"]["phase"] == "Pending"


def test_a_slow_pod_becomes_ready_when_the_test_says_so(namespace: Namespace) -> None:
    """Waiting can be tested without a clock."""
    namespace.apply(make_deployment("web", image="web:slow"))
    pods = namespace.api.wait_all(
        "v1",
        "Pod",
        namespace.name,
        are_right=lambda pods: (
            len(pods) == 2 and all(pod["status"].get("phase") == "Running" for pod in pods)
        ),
    )
    assert [is_ready(pod) for pod in pods] == [False, False]
    namespace.set_behaviour("run")
    namespace.wait_workload("Deployment", "web")


def test_a_running_pod_crashes_when_the_test_says_so(namespace: Namespace) -> None:
    """What fails later than its rollout can be tested too."""
    namespace.apply(make_deployment("web"))
    namespace.wait_workload("Deployment", "web")
    namespace.set_behaviour("crash")
    namespace.wait_pods(2, reason="CrashLoopBackOff")


def test_a_job_completes_or_fails_as_its_image_says(namespace: Namespace) -> None:
    """The pods of a Job end."""
    for name, image in (("good", "task:1"), ("bad", "task:crash")):
        template = {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "task", "image": image}]}
        }
        spec = {"backoffLimit": 0, "template": template}
        namespace.apply(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        )
    for name, kind in (("good", "Complete"), ("bad", "Failed")):

        def is_done(job: Object | None, kind: str = kind) -> bool:
            conditions = (job or {}).get("status", {}).get("conditions", ())
            return any(each["type"] == kind for each in conditions)

        namespace.api.wait("batch/v1", "Job", name, namespace.name, is_right=is_done)


def test_a_deleted_deployment_takes_its_pods_along(namespace: Namespace) -> None:
    """The garbage collector is the real one."""
    namespace.apply(make_deployment("web"))
    namespace.wait_workload("Deployment", "web")
    namespace.api.delete("apps/v1", "Deployment", "web", namespace.name)
    namespace.wait_pods(0)


def test_a_stuck_pod_outlives_its_deletion(namespace: Namespace) -> None:
    """What waits for a deletion can be tested without a clock."""
    namespace.apply(make_deployment("web", replicas=1))
    namespace.wait_workload("Deployment", "web")
    (name,) = namespace.set_behaviour("stuck")
    namespace.api.delete("apps/v1", "Deployment", "web", namespace.name)

    def is_terminating(pod: Object | None) -> bool:
        return pod is not None and "deletionTimestamp" in pod["metadata"]

    namespace.api.wait("v1", "Pod", name, namespace.name, is_right=is_terminating)
    namespace.set_behaviour("run")
    namespace.wait_pods(0)


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("networking.istio.io/v1", "VirtualService"),
        ("networking.istio.io/v1beta1", "DestinationRule"),
        ("gateway.networking.k8s.io/v1", "HTTPRoute"),
    ],
)
def test_objects_of_istio_and_the_gateway_api_are_kept(
    namespace: Namespace, api_version: str, kind: str
) -> None:
    """Traffic is split by changing them; nothing has to act on them."""
    spec = {"hosts": ["web"], "http": [{"route": [{"weight": 90}, {"weight": 10}]}]}
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "web"}, "spec": spec}
    namespace.apply(body)
    found = namespace.get(api_version, kind, "web")
    assert found is not None
    assert found["spec"] == spec


def test_two_clusters_are_separate(namespace: Namespace, second_namespace: Namespace) -> None:
    """What is in one is not in the other, and neither trusts the other's certificates."""
    assert namespace.cluster.server != second_namespace.cluster.server
    assert second_namespace.api.get("v1", "Namespace", namespace.name) is None
    second_namespace.apply(make_deployment("web"))
    second_namespace.wait_workload("Deployment", "web")
    assert namespace.find_all("apps/v1", "Deployment") == []
    assert (
        namespace.cluster.authority.read_bytes() != second_namespace.cluster.authority.read_bytes()
    )


def test_a_token_has_the_rights_that_it_was_given(
    cluster: RealCluster, namespace: Namespace
) -> None:
    """Rights are checked, so that a test of least rights means something."""
    everything, nothing = cluster.connect(ADMIN_TOKEN), cluster.connect(NOBODY_TOKEN)
    try:
        assert everything.find_all("v1", "Pod", namespace.name) == []
        with pytest.raises(RefusedError) as refused:
            nothing.find_all("v1", "Pod", namespace.name)
        assert refused.value.status == 403
    finally:
        everything.close()
        nothing.close()


def test_kubectl_and_helm_are_the_ones_that_were_pinned(cluster: RealCluster, tools: Tools) -> None:
    """Two helms: their flags differ."""
    assert "Server Version: v1.34" in cluster.run_kubectl("version")
    for helm, version in ((tools.helm, "v4."), (tools.helm_3, "v3.")):
        said = subprocess.run([helm, "version", "--short"], check=True, capture_output=True)
        assert said.stdout.decode().startswith(version)


def test_nothing_is_left_of_a_cluster_whose_owner_was_killed(
    cluster: RealCluster, tmp_path: Path
) -> None:
    """A run of the tests that is killed leaves no API server behind."""
    del cluster  # it is here so that this test is skipped where nothing is built
    program = (
        "from pipecd_test_support.kubernetes.real_cluster import running_cluster\n"
        "with running_cluster() as cluster:\n"
        "    print(cluster.folder, flush=True)\n"
        "    input()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    try:
        folder = Path(owner.stdout.readline().decode().strip())
        assert len(_find_processes(folder)) == 6
    finally:
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        owner.stdin.close()
        owner.stdout.close()
    over = time.monotonic() + 20
    while (_find_processes(folder) or folder.exists()) and time.monotonic() < over:
        time.sleep(0.05)
    assert _find_processes(folder) == []
    assert not folder.exists()


def _find_processes(folder: Path) -> list[str]:
    """Return the command lines that name the folder of a cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it has ended
            if os.fsencode(folder) in command:
                found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found
