# SPDX-License-Identifier: Apache-2.0
"""Containers and volumes of a template: images, variables, probes, mounts."""

from typing import Any, Final

from pipecd_plugin_cloudrun.knative.fields import FieldReader, drop_missing

CLOUD_SQL: Final = "cloudsql"
GCS_DRIVER: Final = "gcsfuse.run.googleapis.com"
_PROBES: Final = ("livenessProbe", "startupProbe", "readinessProbe")
_MEDIA: Final = {"memory": "MEMORY", "disk": "DISK"}

Body = dict[str, Any]


def read_container(
    reader: FieldReader, *, secrets: dict[str, str], is_cpu_idle: bool, has_boost: bool | None
) -> Body:
    """Returns one container. `secrets` has the full names of secrets by their aliases."""
    limits = _read_limits(reader.open_map("resources"))
    body = drop_missing(
        name=reader.read_text("name"),
        image=reader.read_text("image"),
        command=reader.read_texts("command"),
        args=reader.read_texts("args"),
        workingDir=reader.read_text("workingDir"),
        env=[_read_variable(each, secrets) for each in reader.open_maps("env")],
        ports=[_read_port(each) for each in reader.open_maps("ports")],
        volumeMounts=[_read_mount(each) for each in reader.open_maps("volumeMounts")],
        resources=drop_missing(limits=limits, cpuIdle=is_cpu_idle, startupCpuBoost=has_boost),
    )
    if "image" not in body:
        reader.fault("image", "is missing")
    for name in _PROBES:
        if reader.has(name):
            body[name] = _read_probe(reader.open_map(name))
    reader.close()
    return body


def _read_limits(reader: FieldReader) -> dict[str, str]:
    limits = reader.read_text_map("limits")
    reader.close()
    return limits


def _read_variable(reader: FieldReader, secrets: dict[str, str]) -> Body:
    body = drop_missing(name=reader.read_text("name"), value=reader.read_text("value"))
    if "name" not in body:
        reader.fault("name", "is missing")
    if reader.has("valueFrom"):
        source = reader.open_map("valueFrom")
        secret = source.open_map("secretKeyRef")
        name, version = secret.read_text("name"), secret.read_text("key")
        if name is None or version is None:
            secret.fault("name", "a secret needs name and key")
        else:
            body["valueSource"] = {
                "secretKeyRef": {"secret": secrets.get(name, name), "version": version}
            }
        secret.close()
        source.close()
    reader.close()
    return body


def _read_port(reader: FieldReader) -> Body:
    body = drop_missing(
        name=reader.read_text("name"), containerPort=reader.read_whole("containerPort")
    )
    if reader.read_text("protocol") not in (None, "TCP"):
        reader.fault("protocol", "must be TCP")
    reader.close()
    return body


def _read_mount(reader: FieldReader) -> Body:
    body = drop_missing(
        name=reader.read_text("name"),
        mountPath=reader.read_text("mountPath"),
        subPath=reader.read_text("subPath"),
    )
    reader.close()
    return body


def _read_probe(reader: FieldReader) -> Body:
    body = drop_missing(
        initialDelaySeconds=reader.read_whole("initialDelaySeconds"),
        timeoutSeconds=reader.read_whole("timeoutSeconds"),
        periodSeconds=reader.read_whole("periodSeconds"),
        failureThreshold=reader.read_whole("failureThreshold"),
    )
    if reader.read_whole("successThreshold") not in (None, 1):
        reader.fault("successThreshold", "must be 1")
    if reader.has("httpGet"):
        asked = reader.open_map("httpGet")
        body["httpGet"] = drop_missing(
            path=asked.read_text("path"),
            port=asked.read_whole("port"),
            httpHeaders=[_read_header(each) for each in asked.open_maps("httpHeaders")],
        )
        asked.close()
    if reader.has("tcpSocket"):
        asked = reader.open_map("tcpSocket")
        body["tcpSocket"] = drop_missing(port=asked.read_whole("port"))
        asked.close()
    if reader.has("grpc"):
        asked = reader.open_map("grpc")
        body["grpc"] = drop_missing(
            port=asked.read_whole("port"), service=asked.read_text("service")
        )
        asked.close()
    reader.close()
    return body


def _read_header(reader: FieldReader) -> Body:
    body = drop_missing(name=reader.read_text("name"), value=reader.read_text("value"))
    reader.close()
    return body


def read_volume(reader: FieldReader, *, secrets: dict[str, str]) -> Body:
    """Returns one volume: a secret, memory, a bucket or a network file system."""
    body = drop_missing(name=reader.read_text("name"))
    if reader.has("secret"):
        body["secret"] = _read_secret(reader.open_map("secret"), secrets)
    if reader.has("emptyDir"):
        memory = reader.open_map("emptyDir")
        body["emptyDir"] = drop_missing(
            medium=memory.read_choice("medium", _MEDIA), sizeLimit=memory.read_text("sizeLimit")
        )
        memory.close()
    if reader.has("nfs"):
        share = reader.open_map("nfs")
        body["nfs"] = drop_missing(
            server=share.read_text("server"),
            path=share.read_text("path"),
            readOnly=share.read_flag("readOnly"),
        )
        share.close()
    if reader.has("csi"):
        body["gcs"] = _read_bucket(reader.open_map("csi"))
    reader.close()
    return body


def _read_secret(reader: FieldReader, secrets: dict[str, str]) -> Body:
    name = reader.read_text("secretName")
    items = []
    for each in reader.open_maps("items"):
        items.append(
            drop_missing(
                path=each.read_text("path"),
                version=each.read_text("key"),
                mode=each.read_whole("mode"),
            )
        )
        each.close()
    body = drop_missing(
        secret=secrets.get(name, name) if name else None,
        items=items,
        defaultMode=reader.read_whole("defaultMode"),
    )
    if "secret" not in body:
        reader.fault("secretName", "is missing")
    reader.close()
    return body


def _read_bucket(reader: FieldReader) -> Body:
    if (driver := reader.read_text("driver")) != GCS_DRIVER:
        reader.fault("driver", f"must be {GCS_DRIVER}: {driver!r}")
    attributes = reader.open_map("volumeAttributes")
    options = attributes.read_text("mountOptions")
    body = drop_missing(
        bucket=attributes.read_text("bucketName"),
        readOnly=reader.read_flag("readOnly"),
        mountOptions=options.split(",") if options else None,
    )
    attributes.close()
    reader.close()
    return body


def add_cloud_sql(containers: list[Body], volumes: list[Body], instances: str) -> None:
    """Adds what the annotation of Cloud SQL stands for: a volume, mounted by every container."""
    names = [each.strip() for each in instances.split(",") if each.strip()]
    if not names:
        return
    volumes.append({"name": CLOUD_SQL, "cloudSqlInstance": {"instances": names}})
    for container in containers:
        container.setdefault("volumeMounts", []).append(
            {"name": CLOUD_SQL, "mountPath": "/cloudsql"}
        )
