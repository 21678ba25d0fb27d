# SPDX-License-Identifier: Apache-2.0
"""What drift detection of a hundred applications costs while nothing changes, by platform.

    python bench_drift.py --only ecs

A real control plane, piped and plugin; the applications are deployed by them, to what is as near to
the platform as a machine without a network has: Terraform itself with states in files, moto for
Amazon ECS and AWS Lambda, our fake of Cloud Run. Measured is CPU time of piped, the plugins and
what they start (git, Terraform), and the calls that arrive at the platform. Intervals are those
that everybody has, but for `driftInterval` of Terraform: an hour, which the default of two minutes
comes to by itself. What a plan of each application in an hour costs stands in a line of its own:
that of the first plan after the states have changed, without a plan's part that is network.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_hundred import check
from report import Bar, info, report
from world import World, cpu_seconds, make_plugin_entry, pss_mib, world

from pipecd_test_support.aws.lab import AwsLab, run_aws_lab
from pipecd_test_support.aws.lambda_lab import ROLE, make_role
from pipecd_test_support.google_cloud.fake_cloud_run import FakeCloudRun
from pipecd_test_support.google_cloud.key_files import write_key_file
from pipecd_test_support.terraform_lab import data, use_terraform
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import application_pb2
from pipecd_wire.rpc import call

COUNT = 100
NAMES = [f"app-{number:03d}" for number in range(COUNT)]
SETTLE_SECONDS = 125
"""Trees that deployments returned are cleaned, and deleted with the next reads: not idling yet."""
MEASURED_SECONDS = 60
STATE_LIMIT_SECONDS = 180
SYNCED, OUT_OF_SYNC = application_pb2.SYNCED, application_pb2.OUT_OF_SYNC
SERVICES_OF_A_CLUSTER = 10
"""moto tells of all tasks of a cluster as those of each of its services."""

Files = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Where applications are deployed to."""

    entry: Mapping[str, Any]
    """The plugin's entry in the piped file."""
    write: Callable[[str], tuple[Mapping[str, Any], Files]]
    """Returns the plugin's options and the files of an application of this name."""
    count_calls: Callable[[], int] | None = None
    """Returns how many calls have arrived so far; None where nobody is called."""
    change_all: Callable[[], None] | None = None
    """Changes what runs of all applications behind piped's back, where looking costs most."""

    @property
    def plugin(self) -> str:
        return str(self.entry["name"])


@contextmanager
def prepare_terraform(folder: Path) -> Iterator[Platform | None]:
    environment = dict(os.environ)
    if not use_terraform(folder / "program", environment):
        print("bench drift: terraform: skipped: there is no Terraform", flush=True)
        yield None
        return
    os.environ.update(environment)

    states = folder / "states"

    def write(name: str) -> tuple[Mapping[str, Any], Files]:
        state = states / f"{name}.tfstate"
        text = f'terraform {{\n  backend "local" {{\n    path = "{state}"\n  }}\n}}\n' + data()
        return {}, {"main.tf": text}

    def lose_resources() -> None:
        for file in states.glob("*.tfstate"):
            state = json.loads(file.read_text())
            file.write_text(json.dumps(state | {"serial": state["serial"] + 1, "resources": []}))

    yield Platform(
        entry=make_plugin_entry("terraform", {}, config={"driftInterval": "1h"}),
        write=write,
        change_all=lose_resources,
    )


@contextmanager
def prepare_ecs(folder: Path) -> Iterator[Platform]:
    def write(name: str) -> tuple[Mapping[str, Any], Files]:
        container = {"name": "web", "image": "web:v1", "memory": 128}
        service = {
            "serviceName": name,
            "cluster": _choose_cluster(name),
            "launchType": "FARGATE",
            "deploymentController": {"type": "EXTERNAL"},
            "desiredCount": 1,
        }
        options = {
            "taskDefinitionFile": "taskdef.json",
            "serviceDefinitionFile": "servicedef.json",
            "accessType": "SERVICE_DISCOVERY",
        }
        return {"input": options}, {
            "taskdef.json": json.dumps({"family": name, "containerDefinitions": [container]}),
            "servicedef.json": json.dumps(service),
        }

    with run_aws_lab(folder) as aws:
        for name in {_choose_cluster(each) for each in NAMES}:
            aws.ecs.create_cluster(clusterName=name)
        yield _make_aws("ecs", aws, write)


def _choose_cluster(name: str) -> str:
    return f"bench-{NAMES.index(name) // SERVICES_OF_A_CLUSTER}"


@contextmanager
def prepare_lambda(folder: Path) -> Iterator[Platform]:
    def write(name: str) -> tuple[Mapping[str, Any], Files]:
        spec = {"name": name, "role": ROLE, "memory": 128, "timeout": 5, "image": "shop:v1"}
        body = {"apiVersion": "pipecd.dev/v1beta1", "kind": "LambdaFunction", "spec": spec}
        return {}, {"function.yaml": json.dumps(body)}

    with run_aws_lab(folder) as aws:
        make_role(aws)
        yield _make_aws("lambda", aws, write)


def _make_aws(
    plugin: str, aws: AwsLab, write: Callable[[str], tuple[Mapping[str, Any], Files]]
) -> Platform:
    def count() -> int:
        return len(aws.calls())

    return Platform(entry=make_plugin_entry(plugin, aws.target), write=write, count_calls=count)


@contextmanager
def prepare_cloudrun(folder: Path) -> Iterator[Platform]:
    def write(name: str) -> tuple[Mapping[str, Any], Files]:
        template = {"spec": {"containers": [{"image": "gcr.io/shop/web:v1"}]}}
        manifest = {
            "apiVersion": "serving.knative.dev/v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"template": template},
        }
        return {}, {"service.yaml": json.dumps(manifest)}

    with FakeCloudRun() as cloud:
        target = {
            "project": "shop",
            "region": "asia-northeast1",
            "credentialsFile": str(write_key_file(folder / "key.json", cloud.token_address)),
            "endpoint": cloud.url,
        }
        yield Platform(
            entry=make_plugin_entry("cloudrun", target),
            write=write,
            count_calls=lambda: len(cloud.asked),
        )


PLATFORMS = {
    "terraform": prepare_terraform,
    "ecs": prepare_ecs,
    "lambda": prepare_lambda,
    "cloudrun": prepare_cloudrun,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What has been used so far."""

    piped: float
    """CPU seconds."""
    agent: float
    """The same of piped, its plugins, and what they have started."""
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A platform whose applications are deployed."""

    platform: Platform
    running: World

    def read(self) -> Reading:
        count = self.platform.count_calls
        return Reading(
            piped=cpu_seconds([self.running.piped.pid]),
            agent=cpu_seconds(self.running.agent_pids()),
            calls=count() if count is not None else 0,
        )

    def report(self, before: Reading, after: Reading) -> None:
        name = f"drift-{self.platform.plugin}"
        minutes = MEASURED_SECONDS / 60
        spent = (after.agent - before.agent) / minutes
        report(f"{name}: {COUNT} applications, CPU", spent, "s/min", Bar("<=", 2))
        info(f"{name}: of which piped", (after.piped - before.piped) / minutes, "s/min")
        if self.platform.count_calls is not None:
            info(f"{name}: calls to the API", (after.calls - before.calls) / minutes, "/min")
        info(f"{name}: memory of the agent", pss_mib(self.running.agent_pids()), "MiB")

    async def report_round(self, before: Reading, after: Reading) -> None:
        """Changes all that runs, and tells what it costs to see that, once in an hour."""
        if self.platform.change_all is None:
            return
        name = f"drift-{self.platform.plugin}"
        began, started = self.read(), time.monotonic()
        self.platform.change_all()
        await wait_state(self.running, OUT_OF_SYNC)
        info(f"{name}: until changes of all are seen", time.monotonic() - started, "s")
        spent = self.read().agent - began.agent
        info(f"{name}: CPU of a plan, with all around it", spent / COUNT * 1000, "ms")
        idle = (after.agent - before.agent) * 60 / MEASURED_SECONDS
        hourly = idle + spent / 60
        report(f"{name}: with a plan of each in an hour, CPU", hourly, "s/min", Bar("<=", 2))


async def measure(names: Sequence[str], folder: Path) -> None:
    """Measures platforms side by side: first all are deployed to, one after the other."""
    async with AsyncExitStack() as stack:
        measured = []
        for name in names:
            root = folder / name
            (root / "world").mkdir(parents=True)
            platform = stack.enter_context(PLATFORMS[name](root))
            if platform is not None:
                site = world(root / "world", plugins=[platform.entry])
                running = await stack.enter_async_context(site)
                await deploy_all(running, platform)
                await wait_state(running, SYNCED)
                measured.append(Measured(platform=platform, running=running))
        await asyncio.sleep(SETTLE_SECONDS)
        before = [each.read() for each in measured]
        await asyncio.sleep(MEASURED_SECONDS)  # what is measured is a time in which nothing happens
        after = [each.read() for each in measured]
        for each, start, end in zip(measured, before, after, strict=True):
            each.report(start, end)
        for each, start, end in zip(measured, before, after, strict=True):
            await each.report_round(start, end)


async def deploy_all(running: World, platform: Platform) -> None:
    for name in NAMES:
        options, files = platform.write(name)
        spec = {"name": name, "plugins": {platform.plugin: options}}
        whole = {"apiVersion": "pipecd.dev/v1beta1", "kind": "Application", "spec": spec}
        running.write(f"{name}/app.pipecd.yaml", json.dumps(whole))
        for path, text in files.items():
            running.write(f"{name}/{path}", text)
    head = running.commit("add a hundred applications")
    started = time.monotonic()
    for name in NAMES:
        await running.add_application(name, target="main", plugin=platform.plugin)
    check(await running.deployments_of(head, COUNT, completed=True))
    took = time.monotonic() - started
    info(f"drift-{platform.plugin}: {COUNT} deployments before it", took, "s")


async def wait_state(running: World, status: int) -> None:
    """Wait until all applications are in a state. Raises AssertionError with another one."""
    request = pb.ListApplicationsRequest(limit=2 * COUNT)
    until = time.monotonic() + STATE_LIMIT_SECONDS
    while True:
        found = (await call(running.api.ListApplications, request)).applications
        others = [each for each in found if each.sync_state.status != status]
        if len(found) == COUNT and not others:
            return
        assert time.monotonic() < until, f"{len(others)} are in another state: {others[:1]}"
        await asyncio.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=[*PLATFORMS], action="append", help="a platform")
    names = parser.parse_args().only or [*PLATFORMS]
    with tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder:
        asyncio.run(measure(names, Path(folder)))


if __name__ == "__main__":
    main()
