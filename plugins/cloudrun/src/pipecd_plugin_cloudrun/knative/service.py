# SPDX-License-Identifier: Apache-2.0
"""A Knative Service (`serving.knative.dev/v1`) as a Service of the API's version 2."""

from dataclasses import dataclass
from typing import Final

from pipecd_plugin_cloudrun.knative.containers import Body
from pipecd_plugin_cloudrun.knative.fields import FieldReader, drop_missing
from pipecd_plugin_cloudrun.knative.template import (
    RUN,
    read_audiences,
    read_launch,
    read_metadata,
    read_pod,
)

_INGRESS: Final = {
    "all": "INGRESS_TRAFFIC_ALL",
    "internal": "INGRESS_TRAFFIC_INTERNAL_ONLY",
    "internal-and-cloud-load-balancing": "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER",
    "none": "INGRESS_TRAFFIC_NONE",
}
_MODES: Final = {"automatic": "AUTOMATIC", "manual": "MANUAL"}
_REVOCATIONS: Final = {"prevent-new": "PREVENT_NEW", "shut-down": "SHUTDOWN"}
LOCATION: Final = "cloud.googleapis.com/location"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedRevision:
    """A tag that the manifest gives a revision; without a name it is the one that is deployed."""

    tag: str
    revision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficWish:
    """What the manifest says of traffic: tags count, shares are decided by stages."""

    tags: tuple[TaggedRevision, ...] = ()
    has_shares: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedService:
    """A service without traffic, revision name and labels of ours: stages add these."""

    name: str
    namespace: str
    location: str
    body: Body
    traffic: TrafficWish
    revision: str
    """The name that the manifest gives its revision; stages give their own."""


def translate_service(reader: FieldReader) -> TranslatedService:
    """Returns the service of a manifest. Faults go to the reader."""
    reader.ignore("apiVersion", "kind", "status")
    metadata = reader.open_map("metadata")
    namespace = metadata.read_text("namespace") or ""
    name, labels, annotations = read_metadata(metadata)
    location = labels.read_text(LOCATION) or ""
    spec = reader.open_map("spec")
    body = _read_service(annotations)
    body["annotations"] = annotations.close_names()
    body["labels"] = labels.close_names()
    template = spec.open_map("template")
    inner = template.open_map("metadata")
    revision, template_labels, template_annotations = read_metadata(inner)
    pod = template.open_map("spec")
    body["template"] = _read_template(template_annotations, pod)
    # The reference has this one in both places.
    if (audiences := read_audiences(template_annotations)) is not None:
        body["customAudiences"] = audiences
    body["template"]["annotations"] = template_annotations.close_names()
    body["template"]["labels"] = template_labels.close_names()
    traffic = _read_traffic(spec.open_maps("traffic"))
    for each in (pod, inner, template, spec, metadata, reader):
        each.close()
    return TranslatedService(
        name=name,
        namespace=namespace,
        location=location,
        body=body,
        traffic=traffic,
        revision=revision,
    )


def _read_service(annotations: FieldReader) -> Body:
    annotations.ignore(f"{RUN}/ingress-status", f"{RUN}/urls")
    scaling = drop_missing(
        minInstanceCount=annotations.read_whole(f"{RUN}/minScale"),
        maxInstanceCount=annotations.read_whole(f"{RUN}/maxScale"),
        scalingMode=annotations.read_choice(f"{RUN}/scalingMode", _MODES),
        manualInstanceCount=annotations.read_whole(f"{RUN}/manualInstanceCount"),
    )
    return read_launch(annotations) | drop_missing(
        description=annotations.read_text(f"{RUN}/description"),
        ingress=annotations.read_choice(f"{RUN}/ingress", _INGRESS),
        scaling=scaling,
        customAudiences=read_audiences(annotations),
        defaultUriDisabled=annotations.read_flag(f"{RUN}/default-url-disabled"),
        invokerIamDisabled=annotations.read_flag(f"{RUN}/invoker-iam-disabled"),
        iapEnabled=annotations.read_flag(f"{RUN}/iap-enabled"),
    )


def _read_template(annotations: FieldReader, spec: FieldReader) -> Body:
    hours = annotations.read_whole(f"{RUN}/encryption-key-shutdown-hours")
    return read_pod(annotations, spec) | drop_missing(
        scaling=drop_missing(
            minInstanceCount=annotations.read_whole("autoscaling.knative.dev/minScale"),
            maxInstanceCount=annotations.read_whole("autoscaling.knative.dev/maxScale"),
        ),
        maxInstanceRequestConcurrency=spec.read_whole("containerConcurrency"),
        sessionAffinity=annotations.read_flag(f"{RUN}/sessionAffinity"),
        healthCheckDisabled=annotations.read_flag(f"{RUN}/health-check-disabled"),
        serviceMesh=drop_missing(mesh=annotations.read_text(f"{RUN}/mesh")),
        encryptionKeyRevocationAction=annotations.read_choice(
            f"{RUN}/post-key-revocation-action-type", _REVOCATIONS
        ),
        encryptionKeyShutdownDuration=f"{hours * 3600}s" if hours is not None else None,
        client=annotations.read_text(f"{RUN}/client-name"),
        clientVersion=annotations.read_text(f"{RUN}/client-version"),
    )


def _read_traffic(entries: list[FieldReader]) -> TrafficWish:
    tags, has_shares = [], False
    for each in entries:
        each.ignore("url")
        revision = each.read_text("revisionName") or ""
        is_latest = each.read_flag("latestRevision")
        if is_latest and revision:
            each.fault("revisionName", "cannot be given together with latestRevision")
        has_shares |= bool(each.read_whole("percent"))
        if tag := each.read_text("tag"):
            tags.append(TaggedRevision(tag=tag, revision=revision))
        each.close()
    return TrafficWish(tags=tuple(tags), has_shares=has_shares)
