# SPDX-License-Identifier: Apache-2.0
"""A control plane and a piped whose Kubernetes plugins deploy to real clusters."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipecd_test_support.kubernetes.real_cluster import RealCluster
from pipecd_test_support.kubernetes_site import KubernetesSite, configure
from pipecd_test_support.piped_site import PipedSite, ServerProcess, SiteClient, register_site

RIGHTS = Path(__file__).parents[3] / "deploy/kubernetes/rights.yaml"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A control plane for all tests of a module."""
    made = ServerProcess(tmp_path_factory.mktemp("server"))
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def piped(
    server: ServerProcess, cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PipedSite]:
    """A piped for all tests of a module, with one cluster."""
    made = register_site(tmp_path_factory.mktemp("piped"), server)
    made.commit({"README": "an example"})
    configure(made, {"main": cluster.kubeconfig})
    made.start()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
async def person(piped: PipedSite) -> AsyncIterator[SiteClient]:
    async with piped.client() as opened:
        yield opened


@pytest.fixture
def make_site(piped: PipedSite, person: SiteClient) -> Callable[..., KubernetesSite]:
    """Make an application in a folder of its own."""

    def make(path: str, **given: Any) -> KubernetesSite:
        return KubernetesSite(piped, person, path, **given)

    return make


@pytest.fixture
def own_piped(server: ServerProcess, tmp_path: Path) -> Iterator[PipedSite]:
    """A piped of one test, not configured and not started."""
    made = register_site(tmp_path, server)
    made.commit({"README": "an example"})
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def kubeconfig(cluster: RealCluster, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig file of the account that the documentation tells people to make."""
    text = RIGHTS.read_text("utf-8")
    cluster.run_kubectl("apply", "-f", "-", stdin=text)
    token = cluster.run_kubectl("create", "token", "piped", "--namespace", "pipecd").strip()
    yield cluster.write_kubeconfig(tmp_path / "kubeconfig", token=token)
    for body in yaml.safe_load_all(text):
        if body["kind"].startswith("Cluster"):
            cluster.run_kubectl("delete", body["kind"], body["metadata"]["name"])
