# SPDX-License-Identifier: Apache-2.0
"""Commits of a service or job, a fake Cloud Run, and a harness of the plugin between them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipecd_plugin_cloudrun.plugin import CloudRunPlugin

from pipecd_google.api import CallPolicy
from pipecd_sdk import Deployment, replace
from pipecd_sdk.kit import yaml
from pipecd_sdk.testing import FakeClock, StageHarness, deploy_target, example_deployment
from pipecd_test_support.google_cloud.fake_cloud_run import FakeCloudRun
from pipecd_test_support.google_cloud.key_files import write_key_file

Body = dict[str, Any]


def make_commit(number: int) -> str:
    """The hash of a commit."""
    return f"{number:07x}" + "a" * 33


def make_service(image: str = "gcr.io/shop/web:v1", **spec: Any) -> Body:
    """The manifest of a service, as people write it."""
    template = spec.pop("template", {})
    metadata = spec.pop("metadata", {})
    container = {"image": image, "env": [{"name": "MODE", "value": "prod"}], **spec.pop("web", {})}
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {"name": "web", **metadata},
        "spec": {"template": {**template, "spec": {"containers": [container]}}, **spec},
    }


def make_job(image: str = "gcr.io/shop/batch:v1") -> Body:
    """The manifest of a job."""
    return {
        "apiVersion": "run.googleapis.com/v1",
        "kind": "Job",
        "metadata": {"name": "batch"},
        "spec": {
            "template": {
                "spec": {
                    "taskCount": 3,
                    "template": {"spec": {"maxRetries": 1, "containers": [{"image": image}]}},
                }
            }
        },
    }


async def pause_briefly(_: float) -> None:
    """Retries of a test need no pause."""


class CloudRunLab:
    """Makes commits and harnesses, all of one application, and looks at what became of them."""

    def __init__(self, folder: Path, cloud: FakeCloudRun) -> None:
        self.folder = folder
        self.cloud = cloud
        self.key = write_key_file(folder / "key.json", cloud.token_address)
        self.plugin = CloudRunPlugin(CallPolicy(sleep=pause_briefly))

    def write(self, number: int, manifest: Body | str, **files: str) -> Path:
        """A commit's folder."""
        folder = self.folder / f"commit-{number}"
        folder.mkdir(exist_ok=True)
        text = manifest if isinstance(manifest, str) else yaml.dump(manifest)
        (folder / "service.yaml").write_text(text)
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_text(content)
        return folder

    def target(self) -> dict[str, str]:
        """The options of a deploy target that leads to the fake."""
        return {
            "project": "shop",
            "region": "asia-northeast1",
            "credentialsFile": str(self.key),
            "endpoint": self.cloud.url,
        }

    def __call__(
        self,
        manifest: Body | str | Path,
        *,
        number: int = 2,
        running: Body | None = None,
        running_number: int = 1,
        options: Mapping[str, Any] | None = None,
        clock: FakeClock | None = None,
        application: str = "application-1",
    ) -> StageHarness[CloudRunPlugin]:
        """A harness for a deployment of this manifest."""
        folder = manifest if isinstance(manifest, Path) else self.write(number, manifest)
        before = self.write(running_number, running) if running is not None else None
        return StageHarness(
            self.plugin,
            clock=clock,
            options=options,
            directory=folder,
            running_directory=before,
            deployment=self.deployment(number, running_number if before else 0, application),
            targets=[deploy_target(CloudRunPlugin, "tokyo", self.target())],
        )

    def deployment(self, number: int, running: int, application: str) -> Deployment:
        example = example_deployment()
        return replace(
            example,
            id=f"deployment-{number}",
            application_id=application,
            commit=replace(example.commit, hash=make_commit(number)),
            running_commit=make_commit(running) if running else "",
        )

    def service(self, name: str = "web") -> Body:
        """A service as the fake has it."""
        return self.cloud.state.services[name]

    def traffic(self, name: str = "web") -> dict[str, int]:
        """Percents by revisions, those without any left out."""
        return {
            each["revision"]: each["percent"]
            for each in self.service(name)["traffic"]
            if each.get("percent")
        }

    def what_people_decide(self, name: str = "web") -> Body:
        """What a rollback must restore: all that the platform does not count by itself."""
        left_out = {"etag", "generation", "observedGeneration", "trafficStatuses"}
        service = self.service(name)
        return {key: value for key, value in service.items() if key not in left_out}
