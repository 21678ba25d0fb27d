# SPDX-License-Identifier: Apache-2.0
"""The manifest of a commit: read from the application's folder, checked, translated."""

import re
from dataclasses import dataclass
from typing import Any, Final

from pipecd_plugin_cloudrun.config import CloudRunOptions, CloudRunTarget
from pipecd_plugin_cloudrun.knative.containers import Body
from pipecd_plugin_cloudrun.knative.fields import FieldReader
from pipecd_plugin_cloudrun.knative.job import translate_job
from pipecd_plugin_cloudrun.knative.service import TrafficWish, translate_service
from pipecd_sdk import InvalidFileError, Source
from pipecd_sdk.kit.manifests import read_manifest_file

MOST_FAULTS: Final = 20
SERVICE_VERSION: Final = "serving.knative.dev/v1"
JOB_VERSION: Final = "run.googleapis.com/v1"
NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,47}[a-z0-9])?")
"""What Cloud Run takes as the name of a service or a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunManifest:
    """A service or a job as git has it."""

    is_job: bool
    name: str
    raw: dict[str, Any]
    """As people wrote it."""
    body: Body
    """As the API takes it, without traffic, the name of a revision and labels of ours."""
    traffic: TrafficWish
    namespace: str
    location: str
    is_secret: bool
    """piped has put opened secrets into the file: its values are not shown."""

    @property
    def kind(self) -> str:
        return "Job" if self.is_job else "Service"

    @property
    def pod(self) -> Body:
        """Returns what has the containers."""
        template: Body = self.body["template"]
        return template["template"] if self.is_job else template

    def list_images(self) -> list[str]:
        """Returns the images of all containers, in their order."""
        return [each["image"] for each in self.pod.get("containers", ()) if each.get("image")]


def load_manifest(source: Source, target: CloudRunTarget | None = None) -> RunManifest:
    """Returns the manifest of a commit, from its file: call it in a thread.

    Raises InvalidFileError.
    """
    options: CloudRunOptions = source.options
    name = options.input.service_manifest_file
    file = read_manifest_file(source, name, what="the manifest", option="input.serviceManifestFile")
    raw = file.value
    faults: list[str] = []
    reader = FieldReader(raw, "", faults)
    found = _translate(raw, reader, name)
    if not NAME.fullmatch(found.name):
        faults.insert(0, f"metadata.name: not the name of a service: {found.name!r}")
    if target is not None:
        faults += _check_place(found, target)
    if faults:
        more = f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
        raise InvalidFileError(f"{name}: {'; '.join(faults[:MOST_FAULTS])}{more}")
    return found if not file.holds_secrets else _mark_secret(found)


def _translate(raw: dict[str, Any], reader: FieldReader, file: str) -> RunManifest:
    match raw.get("apiVersion"), raw.get("kind"):
        case (str(version), "Service") if version == SERVICE_VERSION:
            service = translate_service(reader)
            return RunManifest(
                is_job=False,
                name=service.name,
                raw=raw,
                body=service.body,
                traffic=service.traffic,
                namespace=service.namespace,
                location=service.location,
                is_secret=False,
            )
        case (str(version), "Job") if version == JOB_VERSION:
            job = translate_job(reader)
            return RunManifest(
                is_job=True,
                name=job.name,
                raw=raw,
                body=job.body,
                traffic=TrafficWish(),
                namespace=job.namespace,
                location=job.location,
                is_secret=False,
            )
        case version, kind:
            raise InvalidFileError(
                f"{file}: neither a service nor a job: apiVersion {version!r}, kind {kind!r}",
                hint=f"{SERVICE_VERSION} Service, or {JOB_VERSION} Job",
            )


def _mark_secret(manifest: RunManifest) -> RunManifest:
    fields = {name: getattr(manifest, name) for name in manifest.__slots__}
    return RunManifest(**{**fields, "is_secret": True})


def _check_place(manifest: RunManifest, target: CloudRunTarget) -> list[str]:
    """Returns faults where a manifest names another place than the deploy target."""
    found = []
    namespace = manifest.namespace
    if namespace and not namespace.isdigit() and namespace != target.project:
        found.append(
            f"metadata.namespace: is {namespace!r}, and the deploy target's project"
            f" {target.project!r}"
        )
    if manifest.location and manifest.location != target.region:
        found.append(
            f"metadata.labels: its location is {manifest.location!r}, and the deploy target's"
            f" region {target.region!r}"
        )
    return found
