# SPDX-License-Identifier: Apache-2.0
"""What helm and kustomize are told, and what they are never told. Small programs stand for them."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_kubernetes.config import (
    ChartRegistry,
    ChartRepository,
    HelmChart,
    HelmOptions,
    Input,
    KubernetesOptions,
    KubernetesPluginConfig,
)
from pipecd_plugin_kubernetes.rendering import close_homes, load_manifests

from pipecd_sdk import Secret, Source, StageFailedError, Tool, Tools
from pipecd_sdk.testing.pids import is_alive, wait_for_pid

CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
PROGRAM = """#!/bin/sh
case "$1" in version) echo "v3.9.9+gabc"; exit 0;; esac
{ printf '%s\\n' "$@"; echo END; env; } >> LOG
BODY
"""


class Registry(Tools):
    """Has one program for all tools, and says which were asked for."""

    def __init__(self, program: Path) -> None:
        super().__init__()
        self._program = program
        self.asked: list[str] = []

    async def get(self, tool: Tool) -> Path:
        self.asked.append(f"{tool.name} {tool.version}")
        return self._program


class Site:
    """An application in a repository, and programs that note what they are told."""

    def __init__(self, folder: Path) -> None:
        self.outside = folder
        self.root = folder / "repo"
        self.app = self.root / "app"
        (self.root / ".git").mkdir(parents=True)
        self.app.mkdir()
        self.log = folder / "log"
        self.path = folder / "bin"
        self.path.mkdir()
        self.tools = Registry(self.put("registry/tool"))

    def put(self, name: str, body: str = f"echo '{CONFIG}'") -> Path:
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(PROGRAM.replace("LOG", str(self.log)).replace("BODY", body))
        path.chmod(0o755)
        return path

    def write(self, name: str, text: str) -> None:
        (self.app / name).parent.mkdir(parents=True, exist_ok=True)
        (self.app / name).write_text(text)

    def told(self) -> list[str]:
        return self.log.read_text().partition("END\n")[0].splitlines()

    def environment(self) -> dict[str, str]:
        lines = self.log.read_text().partition("END\n")[2].splitlines()
        return dict(line.partition("=")[::2] for line in lines)

    async def load(self, given: Input, **config: Any) -> list[str]:
        found = await load_manifests(
            Source(application_directory=str(self.app)),
            KubernetesOptions(input=given),
            config=KubernetesPluginConfig(**config),
            tools=self.tools,
            application_name="shop",
        )
        return [each.name for each in found]

    async def refuse(self, given: Input, **config: Any) -> str:
        with pytest.raises(StageFailedError) as caught:
            await self.load(given, **config)
        return caught.value.reason()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path)
    monkeypatch.setenv("PATH", f"{made.path}:/usr/bin:/bin")
    monkeypatch.setenv("OPERATOR_TOKEN", "hunter2")
    yield made
    close_homes()


def chart(site: Site, extra: str = "") -> Input:
    site.write("chart/Chart.yaml", f"name: web\nversion: 1.0.0\n{extra}")
    return Input(helm_chart=HelmChart(path="chart"))


async def test_kustomize_is_told_only_options_of_the_list(site: Site) -> None:
    site.put("kustomize")
    site.write("kustomization.yaml", "resources: [a.yaml]")
    site.write("a.yaml", CONFIG)
    given = Input(kustomize_options={"reorder": "none", "enable-managedby-label": ""})
    assert await site.load(given) == ["a"]
    assert site.told() == ["build", "--reorder=none", "--enable-managedby-label=true", "--", "."]
    for name in (
        "enable-exec",
        "enable-alpha-plugins",
        "helm-command",
        "env",
        "mount",
        "network",
        "output",
        "--enable-exec",
        "load-restrictor=x",
        "",
    ):
        assert "is not allowed" in await site.refuse(Input(kustomize_options={name: "x"}))
    bad = Input(kustomize_options={"reorder": "none --enable-exec"})
    assert "reorder cannot be" in await site.refuse(bad)


async def test_programs_get_an_environment_of_their_own(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/root/.kube/config")
    monkeypatch.setenv("HELM_PLUGINS", "/root/plugins")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    site.put("helm")
    await site.load(chart(site))
    found = site.environment()
    assert "OPERATOR_TOKEN" not in found
    assert found["HTTPS_PROXY"].startswith("http://127.0.0.1:"), "the gate, and nothing else"
    assert found["KUBECONFIG"] == os.devnull
    for name in ("HOME", "HELM_PLUGINS", "HELM_CONFIG_HOME", "HELM_REPOSITORY_CONFIG"):
        assert "pipecd-kubernetes-" in found[name]


async def test_kubectl_builds_where_there_is_no_kustomize(site: Site) -> None:
    site.put("kubectl")
    site.write("Kustomization", "")
    assert await site.load(Input()) == ["a"]
    assert site.told() == ["kustomize", "--", "."]


async def test_a_missing_program_is_said_with_what_to_do(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(site.path))
    site.write("kustomization.yaml", "")
    assert "kustomize is not installed" in await site.refuse(Input())
    said = await site.refuse(chart(site))
    assert "helm is not installed where the plugin runs (install it on PATH" in said
    assert "input.helmVersion" in said
    gone = await site.refuse(chart(site), programs={"helm": "/nowhere/helm"})
    assert "programs.helm of the piped file is '/nowhere/helm', which cannot be run" in gone


async def test_a_version_is_that_of_the_machine_or_is_installed(site: Site) -> None:
    site.put("helm")
    given = chart(site).helm_chart
    await site.load(Input(helm_chart=given, helm_version="v3.9.9"))
    assert site.tools.asked == []
    await site.load(Input(helm_chart=given, helm_version="3.17.0"))
    assert site.tools.asked == ["helm 3.17.0"]


async def test_what_a_kustomization_reads_is_in_the_repository(site: Site) -> None:
    site.put("kustomize")
    (site.outside / "secret.yaml").write_text(CONFIG)
    (site.app / "link.yaml").symlink_to("../../secret.yaml")
    for text in (
        "resources: [../../secret.yaml]",
        "Resources: [../../secret.yaml]",
        f"resources: [{site.outside}/secret.yaml]",
        "resources: [link.yaml]",
        "bases: [../..]",
        "configMapGenerator: [{name: a, files: [key=../../secret.yaml]}]",
        "secretGenerator: [{name: a, envs: [../../secret.yaml]}]",
        "patches: [{path: ../../secret.yaml}]",
        "helmCharts: [{name: a, valuesFile: ../../secret.yaml}]",
        "generators: ['{kind: ConfigMapGenerator, files: [../../secret.yaml]}\n']",
    ):
        site.write("kustomization.yaml", text)
        assert "leads out of the repository" in await site.refuse(Input()), text
    assert not site.log.exists(), "kustomize was never started"


async def test_bases_are_looked_through_too(site: Site) -> None:
    site.put("kustomize")
    site.write("kustomization.yaml", "resources: [../base, ../app]")
    site.write("../base/kustomization.yml", "components: [../more]")
    site.write("../more/Kustomization", "crds: [https://evil.dev/crd.yaml]")
    said = await site.refuse(Input())
    assert "../more/Kustomization: crds 'https://evil.dev/crd.yaml': 'evil.dev'" in said


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/org/repo//base?ref=v1",
        "git::https://github.com/org/repo",
        "github.com/org/repo//base",
        "git@github.com:org/repo",
        "ssh://git@github.com/org/repo",
        "file:///etc",
        "https://raw.githubusercontent.com/a/b/c.yaml",
        "http://169.254.169.254/latest/meta-data",
    ],
)
async def test_only_allowed_hosts_are_fetched_from(site: Site, address: str) -> None:
    site.put("kustomize")
    site.write("kustomization.yaml", f"resources: ['{address}']")
    assert "allowed host" in (said := await site.refuse(Input())) or "cannot be fetched" in said
    assert not site.log.exists()


async def test_an_allowed_base_is_left_to_kustomize_but_not_without_restrictions(
    site: Site,
) -> None:
    site.put("kustomize")
    site.write("kustomization.yaml", "resources: [github.com/org/repo//base]")
    assert await site.load(Input(), allowed_hosts=("github.com",)) == ["a"]
    wide = Input(kustomize_options={"load-restrictor": "LoadRestrictionsNone"})
    said = await site.refuse(wide, allowed_hosts=("github.com",))
    assert "cannot be read without restrictions" in said


async def test_helm_is_told_what_the_application_says(site: Site) -> None:
    site.put("helm")
    site.write("values.yaml", "")
    site.write("note.txt", "")
    given = Input(
        namespace="prod",
        helm_chart=chart(site).helm_chart,
        helm_options=HelmOptions(
            set_values={"a": "--post-renderer=x"},
            value_files=("values.yaml",),
            set_files={"f": "../app/note.txt"},
            api_versions=("x/v1",),
            kube_version="1.30",
        ),
    )
    await site.load(given)
    assert site.told() == [
        "template",
        "--no-hooks",
        "--include-crds",
        "--namespace=prod",
        f"--values={site.app}/values.yaml",
        "--set=a=--post-renderer=x",
        f"--set-file=f={site.app}/note.txt",
        "--api-versions=x/v1",
        "--kube-version=1.30",
        "--",
        "shop",
        f"{site.app}/chart",
    ]


async def test_a_chart_and_its_values_are_in_the_repository(site: Site) -> None:
    site.put("helm")
    (site.outside / "chart").mkdir()
    (site.outside / "chart/Chart.yaml").write_text("")
    site.write("../values.yaml", "")
    good = chart(site).helm_chart

    async def refuse(**options: Any) -> str:
        return await site.refuse(Input(helm_chart=good, helm_options=HelmOptions(**options)))

    outside = await site.refuse(Input(helm_chart=HelmChart(path="../../chart")))
    assert "leads out of the repository" in outside
    empty = await site.refuse(Input(helm_chart=HelmChart(path=".")))
    assert "is not the folder of a chart" in empty
    said = await refuse(value_files=("../values.yaml",))
    assert "leads out of the application's folder" in said
    assert "is not an allowed host" in await refuse(value_files=("http://127.0.0.1/v.yaml",))
    assert "cannot be fetched" in await refuse(value_files=("secrets://a",))
    assert "leads out of the repository" in await refuse(set_files={"a": "../../chart"})
    assert "has a comma" in await refuse(set_files={"a=/etc/passwd,b": "chart/Chart.yaml"})
    (site.app / "chart/files").symlink_to("/etc")
    assert "the link 'files' leads out of the repository" in await site.refuse(
        Input(helm_chart=good)
    )
    assert not site.log.exists()


async def test_dependencies_come_from_allowed_places(site: Site) -> None:
    site.put("helm")

    def depend(repository: str, key: str = "dependencies") -> Input:
        return chart(site, f"{key}: [{{name: a, version: 1, repository: '{repository}'}}]")

    for repository, said in (
        ("https://evil.dev", "'evil.dev' is not an allowed host"),
        ("oci://evil.dev/a", "'evil.dev' is not an allowed host"),
        ("file://../../../x", "leads out of the repository"),
        ("@unknown", "has no chart repository 'unknown'"),
        ("s3://bucket", "cannot be fetched"),
    ):
        assert said in await site.refuse(depend(repository))
        assert said in await site.refuse(depend(repository, "Dependencies"))
    once = site.outside / "once"
    site.put(
        "helm",
        f'[ "$1" = dependency ] && touch {once} && exit 0; '
        f"[ -e {once} ] || {{ echo 'Error: a is missing in charts/ directory' >&2; exit 1; }}; "
        f"echo '{CONFIG}'",
    )
    assert await site.load(depend("https://good.dev"), allowed_hosts=("good.dev",)) == ["a"]
    assert once.exists(), "they were fetched"


async def test_passwords_are_in_private_files_and_in_no_argument(site: Site) -> None:
    site.put(
        "helm",
        'cp "$HELM_REPOSITORY_CONFIG" "$HELM_REGISTRY_CONFIG" '
        f'{site.outside}; stat -c %a "$HELM_REPOSITORY_CONFIG" > {site.outside}/mode; '
        f"echo '{CONFIG}'",
    )
    config: dict[str, Any] = {
        "chart_repositories": (
            ChartRepository(
                name="ours",
                address="https://charts.dev",
                username="me",
                password=Secret("hunter2"),
                insecure=True,
            ),
        ),
        "chart_registries": (
            ChartRegistry(address="reg.dev", username="me", password=Secret("hunter2")),
        ),
    }
    given = HelmChart(repository="ours", name="web", version="1.2.3")
    assert await site.load(Input(helm_chart=given), **config) == ["a"]
    log = site.log.read_text()
    assert "hunter2" not in log.replace("OPERATOR_TOKEN=hunter2", "")
    assert site.told() == ["repo", "update", "--", "ours"]
    for line in ("--version=1.2.3", "--insecure-skip-tls-verify", "ours/web"):
        assert f"\n{line}\n" in log
    assert "password: hunter2" in (site.outside / "repositories.yaml").read_text()
    auths = json.loads((site.outside / "registries.json").read_text())["auths"]
    assert auths == {"reg.dev": {"auth": "bWU6aHVudGVyMg=="}}
    assert (site.outside / "mode").read_text().strip() == "600"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"repository": "ours", "name": "web"}, "the piped file has no chart repository 'ours'"),
        ({"repository": "oci://evil.dev/x", "name": "web"}, "'evil.dev' is not an allowed host"),
        ({"repository": "oci://evil.dev/x", "name": "--web"}, "helmChart.name cannot be"),
        ({"repository": "ours", "name": "web", "version": "1;2"}, "helmChart.version cannot be"),
        ({"git_remote": "https://evil.dev/x", "path": "."}, "'evil.dev' is not an allowed host"),
        ({"git_remote": "ext::sh -c x", "path": "."}, "gitRemote"),
        ({"git_remote": "--upload-pack=x", "path": "."}, "gitRemote"),
    ],
)
async def test_a_chart_from_elsewhere_is_at_an_allowed_place(
    site: Site, given: dict[str, str], said: str
) -> None:
    site.put("helm")
    assert said in await site.refuse(Input(helm_chart=HelmChart(**given)))
    assert not site.log.exists()


async def test_a_reference_that_is_none_is_refused(site: Site) -> None:
    site.put("helm")
    given = HelmChart(git_remote="https://good.dev/x", ref="--upload-pack=x", path=".")
    said = await site.refuse(Input(helm_chart=given), allowed_hosts=("good.dev",))
    assert "helmChart.ref cannot be" in said


async def test_the_error_of_a_fetch_does_not_show_a_password(site: Site) -> None:
    site.put("helm")
    given = HelmChart(git_remote="ssh://git:s3cret@good.dev/x", ref="v1", path=".")
    said = await site.refuse(Input(helm_chart=given), allowed_hosts=("good.dev",))
    assert "fetching the chart from 'ssh://…@good.dev/x' failed" in said
    assert "s3cret" not in said


async def test_an_oci_chart_of_an_allowed_registry_is_named_by_its_address(site: Site) -> None:
    site.put("helm")
    given = HelmChart(repository="oci://reg.dev/charts/", name="web", version="1.0.0")
    registries = (ChartRegistry(address="reg.dev"),)
    await site.load(Input(helm_chart=given), chart_registries=registries)
    assert site.told()[-1] == "oci://reg.dev/charts/web"
    assert "--version=1.0.0" in site.told()


async def test_what_a_program_says_is_shown_clean(site: Site) -> None:
    site.put("helm", "printf 'Error: \\033[31mno\\nway' >&2; exit 1")
    said = await site.refuse(chart(site))
    assert "helm template of 'chart' failed: Error: \\x1b[31mno way" in said


async def test_output_without_end_is_refused(site: Site) -> None:
    site.put("helm", "head -c 20000000 /dev/zero | tr '\\0' '#'")
    assert "printed more than" in await site.refuse(chart(site))


async def test_nothing_rendered_is_an_error(site: Site) -> None:
    """With pruning it would remove everything."""
    site.put("helm", "echo '# nothing'")
    assert "there are no manifests" in await site.refuse(chart(site))


async def test_cancelling_ends_the_program_and_its_children(site: Site) -> None:
    pids = site.outside / "pid"
    site.put("helm", f"sleep 300 & echo $! > {pids}; wait")
    task = asyncio.create_task(site.load(chart(site)))
    pid = await wait_for_pid(pids)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(30):
        while is_alive(pid):  # noqa: ASYNC110 - a process that is not ours has no event
            await asyncio.sleep(0.01)
