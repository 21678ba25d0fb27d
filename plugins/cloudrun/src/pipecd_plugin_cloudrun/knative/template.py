# SPDX-License-Identifier: Apache-2.0
"""What services and jobs have in common: names of things, and the template of their containers."""

import json
from typing import Any, Final

from pipecd_plugin_cloudrun.knative.containers import (
    Body,
    add_cloud_sql,
    read_container,
    read_volume,
)
from pipecd_plugin_cloudrun.knative.fields import FieldReader, drop_missing

RUN: Final = "run.googleapis.com"
_EGRESS: Final = {
    "all-traffic": "ALL_TRAFFIC",
    "all": "ALL_TRAFFIC",
    "private-ranges-only": "PRIVATE_RANGES_ONLY",
}
_ENVIRONMENTS: Final = {
    "gen1": "EXECUTION_ENVIRONMENT_GEN1",
    "gen2": "EXECUTION_ENVIRONMENT_GEN2",
}
_WRITTEN: Final = ("uid", "generation", "resourceVersion", "creationTimestamp", "selfLink")
_WRITTEN_LABELS: Final = (
    f"{RUN}/lastUpdatedTime",
    f"{RUN}/satisfiesPzs",
    f"{RUN}/startupProbeType",
)
_WRITTEN_ANNOTATIONS: Final = (
    f"{RUN}/creator",
    f"{RUN}/lastModifier",
    f"{RUN}/operation-id",
    "serving.knative.dev/creator",
    "serving.knative.dev/lastModifier",
)
_ACCELERATOR: Final = f"{RUN}/accelerator"


def read_metadata(reader: FieldReader) -> tuple[str, FieldReader, FieldReader]:
    """Returns name, labels and annotations; the caller closes the latter two."""
    name = reader.read_text("name") or ""
    reader.ignore(*_WRITTEN)
    labels, annotations = reader.open_map("labels"), reader.open_map("annotations")
    labels.ignore(*_WRITTEN_LABELS)
    annotations.ignore(*_WRITTEN_ANNOTATIONS)
    return name, labels, annotations


def read_launch(annotations: FieldReader) -> Body:
    """Returns what the annotations of a service or a job as a whole stand for."""
    policy = annotations.read_text(f"{RUN}/binary-authorization")
    binary = drop_missing(
        useDefault=True if policy == "default" else None,
        policy=policy if policy != "default" else None,
        breakglassJustification=annotations.read_text(f"{RUN}/binary-authorization-breakglass"),
    )
    return drop_missing(
        launchStage=annotations.read_text(f"{RUN}/launch-stage"),
        binaryAuthorization=binary,
        client=annotations.read_text(f"{RUN}/client-name"),
        clientVersion=annotations.read_text(f"{RUN}/client-version"),
    )


def read_pod(annotations: FieldReader, spec: FieldReader) -> Body:
    """Returns containers, volumes and what surrounds them; the same for revisions and tasks."""
    secrets = _read_aliases(annotations)
    throttled = annotations.read_flag(f"{RUN}/cpu-throttling")
    containers = [
        read_container(
            each,
            secrets=secrets,
            is_cpu_idle=throttled is not False,
            has_boost=annotations.read_flag(f"{RUN}/startup-cpu-boost"),
        )
        for each in spec.open_maps("containers")
    ]
    if not containers:
        spec.fault("containers", "there is no container")
    volumes = [read_volume(each, secrets=secrets) for each in spec.open_maps("volumes")]
    add_cloud_sql(containers, volumes, annotations.read_text(f"{RUN}/cloudsql-instances") or "")
    _add_dependencies(annotations, containers)
    selector = spec.open_map("nodeSelector")
    timeout = spec.read_whole("timeoutSeconds")
    body = drop_missing(
        containers=containers,
        volumes=volumes,
        timeout=f"{timeout}s" if timeout is not None else None,
        serviceAccount=spec.read_text("serviceAccountName"),
        executionEnvironment=annotations.read_choice(f"{RUN}/execution-environment", _ENVIRONMENTS),
        encryptionKey=annotations.read_text(f"{RUN}/encryption-key"),
        vpcAccess=_read_vpc(annotations),
        nodeSelector=drop_missing(accelerator=selector.read_text(_ACCELERATOR)),
        gpuZonalRedundancyDisabled=annotations.read_flag(f"{RUN}/gpu-zonal-redundancy-disabled"),
    )
    selector.close()
    return body


def _read_vpc(annotations: FieldReader) -> Body:
    key = f"{RUN}/network-interfaces"
    interfaces = _read_json(annotations, key, list)
    if interfaces is not None and not all(isinstance(each, dict) for each in interfaces):
        annotations.fault(key, "must be a list of maps, as JSON")
        interfaces = None
    return drop_missing(
        connector=annotations.read_text(f"{RUN}/vpc-access-connector"),
        egress=annotations.read_choice(f"{RUN}/vpc-access-egress", _EGRESS),
        networkInterfaces=interfaces,
    )


def _read_aliases(annotations: FieldReader) -> dict[str, str]:
    """Returns the full names of secrets of other projects by the aliases that manifests use."""
    key = f"{RUN}/secrets"
    found: dict[str, str] = {}
    for each in (annotations.read_text(key) or "").split(","):
        alias, colon, name = each.strip().partition(":")
        if colon:
            found[alias] = name
        elif alias:
            annotations.fault(key, f"must be ALIAS:projects/…/secrets/…: {alias!r}")
    return found


def _add_dependencies(annotations: FieldReader, containers: list[Body]) -> None:
    key = f"{RUN}/container-dependencies"
    wanted = _read_json(annotations, key, dict) or {}
    names = {each.get("name", ""): each for each in containers}
    for name, needs in wanted.items():
        if name not in names or not isinstance(needs, list):
            annotations.fault(key, f"there is no container {name!r}")
        else:
            names[name]["dependsOn"] = needs


def _read_json(annotations: FieldReader, key: str, kind: type[Any]) -> Any:
    text = annotations.read_text(key)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        annotations.fault(key, "must be a list, as JSON" if kind is list else "must be JSON")
        return None
    return value


def read_audiences(annotations: FieldReader) -> list[str] | None:
    """Returns the custom audiences of a service."""
    key = f"{RUN}/custom-audiences"
    value = _read_json(annotations, key, list)
    if value is None:
        return None
    if not all(isinstance(each, str) for each in value):
        annotations.fault(key, "must be a list of texts, as JSON")
        return None
    return list(value)
