# SPDX-License-Identifier: Apache-2.0
"""A Job (`run.googleapis.com/v1`) as a Job of the API's version 2."""

from dataclasses import dataclass

from pipecd_plugin_cloudrun.knative.containers import Body
from pipecd_plugin_cloudrun.knative.fields import FieldReader, drop_missing
from pipecd_plugin_cloudrun.knative.service import LOCATION
from pipecd_plugin_cloudrun.knative.template import RUN, read_launch, read_metadata, read_pod


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedJob:
    """A job without labels of ours."""

    name: str
    namespace: str
    location: str
    body: Body


def translate_job(reader: FieldReader) -> TranslatedJob:
    """Returns the job of a manifest. Faults go to the reader."""
    reader.ignore("apiVersion", "kind", "status")
    metadata = reader.open_map("metadata")
    namespace = metadata.read_text("namespace") or ""
    name, labels, annotations = read_metadata(metadata)
    location = labels.read_text(LOCATION) or ""
    body = read_launch(annotations)
    body["annotations"] = annotations.close_names()
    body["labels"] = labels.close_names()
    spec = reader.open_map("spec")
    outer = spec.open_map("template")
    outer_metadata = outer.open_map("metadata")
    _, execution_labels, execution_annotations = read_metadata(outer_metadata)
    execution = outer.open_map("spec")
    task = execution.open_map("template")
    pod = task.open_map("spec")
    task_body = read_pod(execution_annotations, pod) | drop_missing(
        maxRetries=pod.read_whole("maxRetries")
    )
    for container in task_body.get("containers", ()):
        container.get("resources", {}).pop(
            "cpuIdle", None
        )  # tasks have no requests to idle between
    body["template"] = drop_missing(
        parallelism=execution.read_whole("parallelism"),
        taskCount=execution.read_whole("taskCount"),
        client=execution_annotations.read_text(f"{RUN}/client-name"),
        clientVersion=execution_annotations.read_text(f"{RUN}/client-version"),
        template=task_body,
    )
    body["template"]["annotations"] = execution_annotations.close_names()
    body["template"]["labels"] = execution_labels.close_names()
    for each in (pod, task, execution, outer_metadata, outer, spec, metadata, reader):
        each.close()
    return TranslatedJob(name=name, namespace=namespace, location=location, body=body)
