# SPDX-License-Identifier: Apache-2.0
"""The fields that Cloud Run's API, version 2, takes: anything else is refused, as it would be."""

from typing import Any

RESERVED = (
    "run.googleapis.com",
    "cloud.googleapis.com",
    "serving.knative.dev",
    "autoscaling.knative.dev",
)
TEXT, WHOLE, TRUTH, ANY = "text", "whole", "truth", "any"
TEXTS = [TEXT]
NAMES = {"*": TEXT}

PORT = {"name": TEXT, "containerPort": WHOLE}
PROBE = {
    "initialDelaySeconds": WHOLE,
    "timeoutSeconds": WHOLE,
    "periodSeconds": WHOLE,
    "failureThreshold": WHOLE,
    "httpGet": {"path": TEXT, "port": WHOLE, "httpHeaders": [{"name": TEXT, "value": TEXT}]},
    "tcpSocket": {"port": WHOLE},
    "grpc": {"port": WHOLE, "service": TEXT},
}
CONTAINER: dict[str, Any] = {
    "name": TEXT,
    "image": TEXT,
    "command": TEXTS,
    "args": TEXTS,
    "workingDir": TEXT,
    "env": [
        {
            "name": TEXT,
            "value": TEXT,
            "valueSource": {"secretKeyRef": {"secret": TEXT, "version": TEXT}},
        }
    ],
    "resources": {"limits": NAMES, "cpuIdle": TRUTH, "startupCpuBoost": TRUTH},
    "ports": [PORT],
    "volumeMounts": [{"name": TEXT, "mountPath": TEXT, "subPath": TEXT}],
    "livenessProbe": PROBE,
    "startupProbe": PROBE,
    "readinessProbe": PROBE,
    "dependsOn": TEXTS,
    "baseImageUri": TEXT,
}
VOLUME = {
    "name": TEXT,
    "secret": {
        "secret": TEXT,
        "items": [{"path": TEXT, "version": TEXT, "mode": WHOLE}],
        "defaultMode": WHOLE,
    },
    "cloudSqlInstance": {"instances": TEXTS},
    "emptyDir": {"medium": TEXT, "sizeLimit": TEXT},
    "nfs": {"server": TEXT, "path": TEXT, "readOnly": TRUTH},
    "gcs": {"bucket": TEXT, "readOnly": TRUTH, "mountOptions": TEXTS},
}
POD: dict[str, Any] = {
    "containers": [CONTAINER],
    "volumes": [VOLUME],
    "timeout": TEXT,
    "serviceAccount": TEXT,
    "executionEnvironment": TEXT,
    "encryptionKey": TEXT,
    "vpcAccess": {
        "connector": TEXT,
        "egress": TEXT,
        "networkInterfaces": [{"network": TEXT, "subnetwork": TEXT, "tags": TEXTS}],
    },
    "nodeSelector": {"accelerator": TEXT},
    "gpuZonalRedundancyDisabled": TRUTH,
}
TEMPLATE: dict[str, Any] = {
    **POD,
    "revision": TEXT,
    "labels": NAMES,
    "annotations": NAMES,
    "scaling": {"minInstanceCount": WHOLE, "maxInstanceCount": WHOLE},
    "maxInstanceRequestConcurrency": WHOLE,
    "serviceMesh": {"mesh": TEXT},
    "encryptionKeyRevocationAction": TEXT,
    "encryptionKeyShutdownDuration": TEXT,
    "sessionAffinity": TRUTH,
    "healthCheckDisabled": TRUTH,
    "client": TEXT,
    "clientVersion": TEXT,
}
LAUNCH: dict[str, Any] = {
    "name": TEXT,
    "etag": TEXT,
    "labels": NAMES,
    "annotations": NAMES,
    "launchStage": TEXT,
    "client": TEXT,
    "clientVersion": TEXT,
    "binaryAuthorization": {"useDefault": TRUTH, "policy": TEXT, "breakglassJustification": TEXT},
}
SERVICE: dict[str, Any] = {
    **LAUNCH,
    "description": TEXT,
    "ingress": TEXT,
    "template": TEMPLATE,
    "traffic": [{"type": TEXT, "revision": TEXT, "percent": WHOLE, "tag": TEXT}],
    "scaling": {
        "minInstanceCount": WHOLE,
        "maxInstanceCount": WHOLE,
        "scalingMode": TEXT,
        "manualInstanceCount": WHOLE,
    },
    "customAudiences": TEXTS,
    "defaultUriDisabled": TRUTH,
    "invokerIamDisabled": TRUTH,
    "iapEnabled": TRUTH,
}
JOB: dict[str, Any] = {
    **LAUNCH,
    "template": {
        "labels": NAMES,
        "annotations": NAMES,
        "parallelism": WHOLE,
        "taskCount": WHOLE,
        "client": TEXT,
        "clientVersion": TEXT,
        "template": {**POD, "maxRetries": WHOLE},
    },
}


def find_fault(value: Any, schema: Any, path: str = "") -> str:
    """The first thing that the API would refuse, an empty text when there is none."""
    if isinstance(schema, dict):
        return _find_map_fault(value, schema, path)
    if isinstance(schema, list):
        if not isinstance(value, list):
            return f"{path}: not a list"
        faults = (find_fault(each, schema[0], f"{path}[{i}]") for i, each in enumerate(value))
        return next((fault for fault in faults if fault), "")
    kinds = {TEXT: str, WHOLE: int, TRUTH: bool}
    fits = schema == ANY or (
        isinstance(value, kinds[schema]) and not (schema == WHOLE and isinstance(value, bool))
    )
    return "" if fits else f"{path}: not a {schema}: {value!r}"


def _find_map_fault(value: Any, schema: dict[str, Any], path: str) -> str:
    if not isinstance(value, dict):
        return f"{path}: not a map"
    for key, inner in value.items():
        here = f"{path}.{key}" if path else key
        if path.rpartition(".")[2] in {"labels", "annotations"} and key.startswith(RESERVED):
            return f"{here}: is not supported by this version of the API"
        kind = schema.get(key, schema.get("*"))
        if kind is None:
            return f'Unknown name "{here}": Cannot find field.'
        if fault := find_fault(inner, kind, here):
            return fault
    return ""
