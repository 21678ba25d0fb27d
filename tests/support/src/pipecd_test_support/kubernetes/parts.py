# SPDX-License-Identifier: Apache-2.0
"""The command lines of a cluster's parts."""

from dataclasses import dataclass, field
from pathlib import Path

from pipecd_runtime.ports import pick_port
from pipecd_test_support.kubernetes.certificates import Certificates

HOST = "127.0.0.1"
QUERIES_PER_SECOND = 500
"""What the controllers may ask of the API server; their default of 20 makes tests wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a cluster has its files, and on which ports its parts serve."""

    folder: Path
    certificates: Certificates
    api_port: int = field(default_factory=pick_port)
    etcd_port: int = field(default_factory=pick_port)
    peer_port: int = field(default_factory=pick_port)
    kubelet_port: int = field(default_factory=pick_port)

    @property
    def server(self) -> str:
        return f"https://{HOST}:{self.api_port}"

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""
        return self.folder / "kubeconfig"

    @property
    def stages(self) -> Path:
        return self.folder / "stages.yaml"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens.csv"

    def find_log(self, part: str) -> Path:
        """Return the file with what a part says."""
        return self.folder / f"{part}.log"


def list_etcd_flags(places: Places) -> list[str]:
    client, peer = (f"http://{HOST}:{port}" for port in (places.etcd_port, places.peer_port))
    return [
        f"--data-dir={places.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # what is lost with the machine is a test's
        "--log-level=warn",
    ]


def list_api_server_flags(places: Places) -> list[str]:
    files = places.certificates
    return [
        f"--etcd-servers=http://{HOST}:{places.etcd_port}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        "--endpoint-reconciler-type=none",  # it refuses an address of this machine alone
        f"--secure-port={places.api_port}",
        f"--cert-dir={places.folder}",
        f"--tls-cert-file={files.server}",
        f"--tls-private-key-file={files.server_key}",
        f"--client-ca-file={files.authority}",
        f"--token-auth-file={places.tokens}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={files.accounts_key}",
        f"--service-account-signing-key-file={files.accounts_key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--kubelet-client-certificate={files.admin}",
        f"--kubelet-client-key={files.admin_key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged",
        "--profiling=false",
    ]


def list_controller_flags(places: Places) -> list[str]:
    files = places.certificates
    return [
        *_list_client_flags(places),
        f"--kube-api-burst={2 * QUERIES_PER_SECOND}",
        f"--root-ca-file={files.authority}",
        f"--service-account-private-key-file={files.accounts_key}",
    ]


def list_scheduler_flags(places: Places) -> list[str]:
    return [*_list_client_flags(places), f"--kube-api-burst={2 * QUERIES_PER_SECOND}"]


def _list_client_flags(places: Places) -> list[str]:
    return [
        f"--kubeconfig={places.kubeconfig}",
        f"--kube-api-qps={QUERIES_PER_SECOND}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
    ]


def list_kwok_flags(places: Places) -> list[str]:
    return [
        f"--kubeconfig={places.kubeconfig}",
        f"--config={places.stages}",
        "--manage-all-nodes=true",
        "--cidr=10.1.0.0/16",
        f"--node-ip={HOST}",
        f"--node-port={places.kubelet_port}",
        f"--server-address={HOST}:{places.kubelet_port}",
        f"--tls-cert-file={places.certificates.server}",
        f"--tls-private-key-file={places.certificates.server_key}",
        "--enable-crds=Logs,ClusterLogs",
    ]
