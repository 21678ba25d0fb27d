# SPDX-License-Identifier: Apache-2.0
"""Rendering with the real programs: kubectl's kustomize, helm 3 and helm 4."""

import functools
import hashlib
import http.server
import io
import json
import ssl
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from pipecd_plugin_kubernetes.config import (
    ChartRegistry,
    ChartRepository,
    HelmChart,
    HelmOptions,
    Input,
    KubernetesOptions,
    KubernetesPluginConfig,
)
from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.rendering import close_homes, load_manifests

from pipecd_sdk import Secret, Source, StageFailedError, Tool, Tools
from pipecd_sdk.kit import yaml
from pipecd_sdk.kit.shell import run
from pipecd_test_support.kubernetes.packages import find_tools
from pipecd_test_support.oci_registry import USER, OciRegistry

CHART = {
    "Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\n",
    "values.yaml": "image: web:v1\nreplicas: 1\nfile: none\n",
    "templates/web.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}
spec:
  replicas: {{ .Values.replicas }}
  template: {spec: {containers: [{name: web, image: "{{ .Values.image }}"}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: facts}
data:
  kube: {{ .Capabilities.KubeVersion.Version | quote }}
  api: {{ .Capabilities.APIVersions.Has "x.dev/v1" | quote }}
  file: {{ .Values.file | quote }}
""",
    "templates/hook.yaml": """
apiVersion: batch/v1
kind: Job
metadata: {name: hook, annotations: {helm.sh/hook: pre-install}}
""",
    "crds/zone.yaml": """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: zones.x.dev}
spec: {group: x.dev, scope: Cluster, names: {kind: Zone, plural: zones}}
""",
}


class NoInstalls(Tools):
    """Installs nothing."""

    async def get(self, tool: Tool) -> Path:
        raise AssertionError(f"nobody needs {tool.name}")


@pytest.fixture(autouse=True)
def _close_homes() -> Iterator[None]:
    yield
    close_homes()


@pytest.fixture(params=["helm", "helm_3"])
def helm(request: pytest.FixtureRequest) -> str:
    return str(getattr(find_tools(), request.param))


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "repo/.git").mkdir(parents=True)
    (tmp_path / "repo/app").mkdir()
    return tmp_path / "repo/app"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


async def render(app: Path, given: Input, *, helm: str = "", **config: Any) -> dict[str, Manifest]:
    programs = {"kubectl": str(find_tools().kubectl)} | ({"helm": helm} if helm else {})
    found = await load_manifests(
        Source(application_directory=str(app), config_filename="app.pipecd.yaml"),
        KubernetesOptions(input=given),
        config=KubernetesPluginConfig(programs=programs, **config),
        tools=NoInstalls(),
        application_name="shop",
    )
    return {f"{each.kind}/{each.name}": each for each in found}


async def test_a_chart_of_the_repository_is_rendered_with_all_options(app: Path, helm: str) -> None:
    write(app.parent / "charts/web", CHART)
    write(app, {"prod.yaml": "replicas: 2\n", "note.txt": "a note"})
    found = await render(
        app,
        Input(
            namespace="prod",
            helm_chart=HelmChart(path="../charts/web"),
            helm_options=HelmOptions(
                release_name="front",
                set_values={"image": "web:v2"},
                value_files=("prod.yaml",),
                set_files={"file": "note.txt"},
                api_versions=("x.dev/v1",),
                kube_version="1.30.4",
            ),
        ),
        helm=helm,
    )
    assert set(found) == {
        "Deployment/front",
        "ConfigMap/facts",
        "CustomResourceDefinition/zones.x.dev",
    }, "hooks are left out, definitions are not"
    web = found["Deployment/front"].body
    assert web["metadata"]["namespace"] == "prod"
    assert web["spec"]["replicas"] == 2
    assert web["spec"]["template"]["spec"]["containers"][0]["image"] == "web:v2"
    assert found["ConfigMap/facts"].body["data"] == {
        "kube": "v1.30.4",
        "api": "true",
        "file": "a note",
    }
    assert "namespace" not in found["CustomResourceDefinition/zones.x.dev"].metadata


async def test_the_release_has_the_name_of_the_application(app: Path, helm: str) -> None:
    write(app / "chart", CHART)
    found = await render(app, Input(helm_chart=HelmChart(path="chart")), helm=helm)
    assert "Deployment/shop" in found


async def test_what_helm_complains_about_is_said(app: Path, helm: str) -> None:
    write(app / "chart", CHART | {"templates/bad.yaml": '{{ fail "no such colour" }}'})
    with pytest.raises(StageFailedError, match="no such colour"):
        await render(app, Input(helm_chart=HelmChart(path="chart")), helm=helm)


async def test_a_dependency_in_the_repository_is_taken_in(app: Path, helm: str) -> None:
    write(app.parent / "charts/web", CHART)
    dependency = "{name: web, version: 1.2.3, repository: 'file://../charts/web'}"
    write(
        app.parent / "outer",
        {"Chart.yaml": f"apiVersion: v2\nname: o\nversion: 1.0.0\ndependencies: [{dependency}]"},
    )
    found = await render(app, Input(helm_chart=HelmChart(path="../outer")), helm=helm)
    assert "Deployment/shop" in found


@contextmanager
def serve(folder: Path, seen: list[str]) -> Iterator[str]:
    """Serves a folder as a chart repository does, for one user."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization", ""))
            if self.path == "/elsewhere.yaml":
                self.send_response(302)
                self.send_header("Location", "http://blocked.example.com/a.yaml")
                self.end_headers()
                return
            super().do_GET()

        def log_message(self, *_args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def pack(version: str) -> bytes:
    """Returns a version of the chart as helm packs it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in CHART.items():
            data = text.replace("1.2.3", version).encode()
            entry = tarfile.TarInfo(f"web/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def publish(folder: Path, version: str) -> None:
    """Puts a version of the chart into a chart repository, beside those that are there."""
    folder.mkdir(exist_ok=True)
    (folder / f"web-{version}.tgz").write_bytes(pack(version))
    entries = [
        {
            "apiVersion": "v2",
            "name": "web",
            "version": path.stem.removeprefix("web-"),
            "digest": hashlib.sha256(path.read_bytes()).hexdigest(),
            "urls": [path.name],
        }
        for path in folder.glob("*.tgz")
    ]
    index = {"apiVersion": "v1", "entries": {"web": entries}, "generated": "2024-01-01T00:00:00Z"}
    (folder / "index.yaml").write_text(yaml.dump(index))


async def test_a_chart_of_a_repository_is_fetched_with_its_password_and_found_when_new(
    app: Path, tmp_path: Path, helm: str
) -> None:
    publish(tmp_path / "charts", "1.2.3")
    seen: list[str] = []
    with serve(tmp_path / "charts", seen) as address:
        repository = ChartRepository(
            name="ours", address=address, username="me", password=Secret("hunter2")
        )

        async def load(version: str) -> dict[str, Manifest]:
            chart = HelmChart(repository="ours", name="web", version=version)
            return await render(
                app, Input(helm_chart=chart), helm=helm, chart_repositories=(repository,)
            )

        assert "Deployment/shop" in await load("1.2.3")
        fetched = len(seen)
        await load("1.2.3")
        assert len(seen) - fetched <= 1, "the index is not fetched again"
        publish(tmp_path / "charts", "1.3.0")
        assert "Deployment/shop" in await load("1.3.0"), "the index was old, and is fetched again"
    assert set(seen) == {"Basic bWU6aHVudGVyMg=="}


@contextmanager
def serve_registry(
    folder: Path, helm: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OciRegistry]:
    """Serves a private registry whose certificate is one of the operator's own authority.

    To this helm 3 a registry on its own machine has no TLS.
    """
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "authority.pem"))
    is_plain = helm == str(find_tools().helm_3)
    with OciRegistry(
        password="hunter2",  # noqa: S106
        is_private=True,
        tls=None if is_plain else tls,
    ) as registry:
        yield registry


def push(registry: OciRegistry, version: str) -> None:
    """Puts a version of the chart into a registry, in the form that `helm push` gives it."""
    helm = "application/vnd.cncf.helm"

    def describe(kind: str, content: bytes) -> dict[str, Any]:
        digest = registry.put_blob(content)
        return {"mediaType": f"{helm}.{kind}", "digest": digest, "size": len(content)}

    config = json.dumps({"apiVersion": "v2", "name": "web", "version": version}).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": describe("config.v1+json", config),
        "layers": [describe("chart.content.v1.tar+gzip", pack(version))],
    }
    registry.put("team/charts/web", version, manifest)


async def test_a_chart_of_a_registry_is_fetched_with_its_password(
    app: Path, tmp_path: Path, helm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_registry(tmp_path, helm, monkeypatch) as registry:
        push(registry, "1.2.3")
        login = ChartRegistry(address=registry.host, username=USER, password=Secret("hunter2"))

        async def load(version: str, **config: Any) -> dict[str, Manifest]:
            address = f"oci://{registry.host}/team/charts"
            chart = HelmChart(repository=address, name="web", version=version)
            return await render(app, Input(helm_chart=chart), helm=helm, **config)

        assert "Deployment/shop" in await load("1.2.3", chart_registries=(login,))
        push(registry, "1.3.0")
        if registry.scheme == "https":  # helm 3 forgets it when it lists versions
            assert "Deployment/shop" in await load("^1.3", chart_registries=(login,))
        with pytest.raises(StageFailedError, match=r"2\.0\.0"):
            await load("2.0.0", chart_registries=(login,))
        with pytest.raises(StageFailedError, match=r"127\.0\.0\.1 is not an allowed host"):
            await load("1.2.3")
        with pytest.raises(StageFailedError, match="401") as caught:
            await load("1.2.3", allowed_hosts=("127.0.0.1",))
    assert "hunter2" not in caught.value.reason()


async def test_a_dependency_of_a_registry_is_fetched_when_it_is_allowed(
    app: Path, tmp_path: Path, helm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_registry(tmp_path, helm, monkeypatch) as registry:
        push(registry, "1.2.3")
        address = f"oci://{registry.host}/team/charts"
        dependency = f"{{name: web, version: 1.2.3, repository: '{address}'}}"
        text = f"apiVersion: v2\nname: o\nversion: 1.0.0\ndependencies: [{dependency}]"
        write(app / "outer", {"Chart.yaml": text})
        chart = Input(helm_chart=HelmChart(path="outer"))
        login = ChartRegistry(address=registry.host, username=USER, password=Secret("hunter2"))

        with pytest.raises(StageFailedError, match=r"127\.0\.0\.1 is not an allowed host"):
            await render(app, chart, helm=helm)
        found = await render(app, chart, helm=helm, chart_registries=(login,))
    assert "Deployment/shop" in found


async def test_a_chart_of_another_git_repository_is_fetched(
    app: Path, tmp_path: Path, helm: str
) -> None:
    """By http, as git servers of old times: from files."""
    remote = tmp_path / "remote"
    write(remote / "deploy/web", CHART)
    await git(remote, "init", "-q", "-b", "main")
    await git(remote, "add", ".")
    await git(remote, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    await git(remote, "tag", "v1")
    await git(remote, "update-server-info")
    with serve(remote, []) as address:
        chart = HelmChart(git_remote=f"{address}/.git", ref="v1", path="deploy/web")
        with pytest.raises(StageFailedError, match=r"127\.0\.0\.1 is not an allowed host"):
            await render(app, Input(helm_chart=chart), helm=helm)
        found = await render(app, Input(helm_chart=chart), helm=helm, allowed_hosts=("127.0.0.1",))
    assert "Deployment/shop" in found


async def git(folder: Path, *arguments: str) -> None:
    await run(["git", *arguments], cwd=folder)


async def test_a_kustomization_is_built(app: Path) -> None:
    write(app.parent / "base", {"kustomization.yaml": "resources: [a.yaml]", "a.yaml": CONFIG})
    write(
        app,
        {"kustomization.yaml": "resources: [../base]\nnamePrefix: x-\n", "other.yaml": "not: one"},
    )
    found = await render(app, Input())
    assert set(found) == {"ConfigMap/x-a"}


CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}"


async def test_a_kustomization_of_another_folder_is_built_with_options(app: Path) -> None:
    write(app / "over", {"kustomization.yml": "resources: [../a.yaml]"})
    write(app, {"a.yaml": CONFIG})
    given = Input(kustomize_dir="over")
    with pytest.raises(StageFailedError, match="kustomize failed"):
        await render(app, given)
    wide = Input(
        kustomize_dir="over", kustomize_options={"load-restrictor": "LoadRestrictionsNone"}
    )
    assert set(await render(app, wide)) == {"ConfigMap/a"}


async def test_a_kustomization_can_have_charts(app: Path) -> None:
    """With helm 3: the kustomize of this kubectl does not know helm 4."""
    write(app / "charts/web", CHART)
    write(
        app,
        {"kustomization.yaml": "helmCharts: [{name: web, releaseName: k}]"},
    )
    given = Input(kustomize_options={"enable-helm": ""})
    found = await render(app, given, helm=str(find_tools().helm_3))
    assert "Deployment/k" in found


async def test_programs_of_the_branch_are_never_run(app: Path, tmp_path: Path) -> None:
    """A function that is a program of the repository stays a text."""
    trace = tmp_path / "trace"
    write(
        app,
        {
            "kustomization.yaml": "resources: [a.yaml]\ntransformers: [run.yaml]\n",
            "a.yaml": CONFIG,
            "run.sh": f"#!/bin/sh\ntouch {trace}\ncat\n",
            "run.yaml": """
apiVersion: x.dev/v1
kind: Run
metadata:
  name: run
  annotations: {config.kubernetes.io/function: "exec: {path: ./run.sh}"}
""",
        },
    )
    (app / "run.sh").chmod(0o755)
    with pytest.raises(StageFailedError):
        await render(app, Input())
    assert not trace.exists()


async def test_what_is_fetched_leads_to_allowed_hosts_only(app: Path, tmp_path: Path) -> None:
    """The kustomization names an allowed host, and that one another, which nobody allowed."""
    write(tmp_path / "served", {"a.yaml": CONFIG})
    with serve(tmp_path / "served", []) as address:
        write(app, {"kustomization.yaml": f"resources: [{address}/a.yaml]"})
        found = await render(app, Input(), allowed_hosts=("127.0.0.1",))
        assert set(found) == {"ConfigMap/a"}
        write(app, {"kustomization.yaml": f"resources: [{address}/elsewhere.yaml]"})
        with pytest.raises(StageFailedError, match=r"blocked\.example\.com. is not an allowed"):
            await render(app, Input(), allowed_hosts=("127.0.0.1",))
