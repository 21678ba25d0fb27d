# SPDX-License-Identifier: Apache-2.0
"""Manifests that `helm template` makes of a chart; with helm 3 and helm 4."""

import asyncio
from pathlib import Path
from typing import Final

from pipecd_plugin_kubernetes.config import HelmChart, HelmOptions, Input, KubernetesPluginConfig
from pipecd_plugin_kubernetes.manifest import Manifest, parse_manifests
from pipecd_plugin_kubernetes.rendering.charts import Chart, find_chart
from pipecd_plugin_kubernetes.rendering.gate import run_gated
from pipecd_plugin_kubernetes.rendering.helm_home import HelmHome
from pipecd_plugin_kubernetes.rendering.programs import Programs, RenderError, run_program
from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.hosts import Hosts
from pipecd_sdk.kit.process import Argument, join_option, own, word
from pipecd_sdk.repository import Folder, resolve_within

_STALE: Final = ("helm repo update", "not found in", "no cached repo", "chart version not found")
"""What helm says when the index that it has may be too old."""
_INCOMPLETE: Final = "missing in charts"
"""What helm says when the dependencies of a chart are not beside it."""


async def render_chart(
    folder: Folder,
    given: Input,
    chart: HelmChart,
    *,
    config: KubernetesPluginConfig,
    programs: Programs,
    hosts: Hosts,
    home: HelmHome,
    work: Path,
    application_name: str,
) -> list[Manifest]:
    """Returns the manifests of a chart. Raises StageFailedError.

    `work` is a folder of this call alone, for what is fetched.
    """
    found = await find_chart(folder, chart, config=config, hosts=hosts, work=work)
    helm = await programs.find("helm", given.helm_version)
    options = given.helm_options or HelmOptions()
    arguments = [
        word(helm),
        *own("template", "--no-hooks", "--include-crds"),
        *_describe_chart(found),
        *([join_option("--namespace=", given.namespace)] if given.namespace else []),
        *await _list_values(folder, options, hosts, work),
        *own("--"),
        word(options.release_name or application_name),
        word(found.reference),
    ]
    output = await _run(helm, tuple(arguments), found, home, folder.path, hosts)
    return await asyncio.to_thread(parse_manifests, output, origin=f"the chart {found.shown}")


def _describe_chart(chart: Chart) -> list[Argument]:
    described = [join_option("--version=", chart.version)] if chart.version else []
    if chart.repository is not None and chart.repository.insecure:
        described += own("--insecure-skip-tls-verify")
    return described


async def _list_values(
    folder: Folder, options: HelmOptions, hosts: Hosts, work: Path
) -> list[Argument]:
    arguments = []
    for number, each in enumerate(options.value_files):
        if "://" in each:
            # The HTTP library would cost every start of the plugin; few have such files.
            from pipecd_plugin_kubernetes.rendering.value_files import (  # noqa: PLC0415
                fetch_values,
            )

            path = await fetch_values(each, hosts, into=work / f"values-{number}.yaml")
        else:
            path = resolve_within(
                folder.path, folder.path, each, "the value file", "the application's folder"
            )
            if not path.is_file():
                raise StageFailedError(f"the value file {each!r} is not in the repository")
        arguments.append(join_option("--values=", _refuse_comma(str(path), "the value file")))
    for key, value in options.set_values.items():
        arguments.append(join_option("--set=", f"{key}={value}"))
    for key, value in options.set_files.items():
        path = folder.resolve(value, f"setFiles {key!r}:")
        plain = _refuse_comma(str(path), f"setFiles {key!r}:")
        arguments.append(join_option("--set-file=", f"{_refuse_comma(key, 'setFiles')}={plain}"))
    arguments += [join_option("--api-versions=", each) for each in options.api_versions]
    if options.kube_version:
        arguments.append(join_option("--kube-version=", options.kube_version))
    return arguments


def _refuse_comma(text: str, what: str) -> str:
    """helm would read what is behind a comma as another file."""
    if "," in text:
        raise StageFailedError(f"{what} {text[:100]!r} has a comma", hint="rename it")
    return text


async def _run(
    helm: Path,
    arguments: tuple[Argument, ...],
    chart: Chart,
    home: HelmHome,
    cwd: Path,
    hosts: Hosts,
) -> str:
    what = f"helm template of {chart.shown!r}"
    env = home.environment

    async def run_template() -> str:
        if chart.is_folder:
            return await run_gated(arguments, what, cwd, env, hosts)
        # A repository of the piped file may keep its charts elsewhere.
        return await run_program(arguments, what, cwd=cwd, env=env)

    name = chart.repository.name if chart.repository else ""
    seen = home.updates
    if name and not home.has_index(name):
        await home.update(helm, name, seen=seen)
        return await run_template()
    try:
        return await run_template()
    except RenderError as error:
        said = str(error)
        is_stale = bool(name) and any(each in said for each in _STALE)
        is_incomplete = chart.has_dependencies and _INCOMPLETE in said
        if not (is_stale or is_incomplete):
            raise
    if is_stale:
        await home.update(helm, name, seen=seen)
    else:
        # Not by a flag of `template`: it would print what it does among the manifests.
        fetch = (word(helm), *own("dependency", "update", "--"), word(chart.reference))
        fetching = f"fetching the dependencies of the chart {chart.shown!r}"
        await run_gated(fetch, fetching, cwd, env, hosts)
    return await run_template()
