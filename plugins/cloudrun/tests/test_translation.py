# SPDX-License-Identifier: Apache-2.0
"""Manifests in Knative form: translated field by field, or refused with the field's name."""

from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_cloudrun.config import CloudRunOptions, CloudRunTarget
from pipecd_plugin_cloudrun.manifest import RunManifest, load_manifest

from pipecd_sdk import InvalidFileError, Source
from pipecd_sdk.kit import yaml
from pipecd_test_support.google_cloud import run_schema
from pipecd_test_support.google_cloud.cloud_run_lab import make_job, make_service

EXPORTS = Path(__file__).with_name("exports")
TARGET = CloudRunTarget(project="shop", region="asia-northeast1")
FULL = """
apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: web
  namespace: "123456"
  labels: {cloud.googleapis.com/location: asia-northeast1, team: shop}
  annotations:
    example.com/owner: shop
    run.googleapis.com/ingress: internal-and-cloud-load-balancing
    run.googleapis.com/ingress-status: all
    run.googleapis.com/launch-stage: BETA
    run.googleapis.com/description: the shop
    run.googleapis.com/binary-authorization: default
    run.googleapis.com/binary-authorization-breakglass: at night
    run.googleapis.com/minScale: 1
    run.googleapis.com/maxScale: "20"
    run.googleapis.com/scalingMode: automatic
    run.googleapis.com/custom-audiences: '["https://a.example.com"]'
    run.googleapis.com/default-url-disabled: "true"
    run.googleapis.com/invoker-iam-disabled: "false"
    run.googleapis.com/operation-id: written-by-the-platform
    serving.knative.dev/creator: written@by.the.platform
spec:
  template:
    metadata:
      labels: {tier: front, run.googleapis.com/startupProbeType: Default}
      annotations:
        autoscaling.knative.dev/minScale: "2"
        autoscaling.knative.dev/maxScale: "10"
        run.googleapis.com/cpu-throttling: "false"
        run.googleapis.com/startup-cpu-boost: "true"
        run.googleapis.com/execution-environment: gen2
        run.googleapis.com/cloudsql-instances: shop:asia:db,shop:asia:db2
        run.googleapis.com/vpc-access-connector: projects/shop/locations/x/connectors/c
        run.googleapis.com/vpc-access-egress: private-ranges-only
        run.googleapis.com/sessionAffinity: "true"
        run.googleapis.com/encryption-key: projects/k
        run.googleapis.com/post-key-revocation-action-type: shut-down
        run.googleapis.com/encryption-key-shutdown-hours: "2"
        run.googleapis.com/secrets: other:projects/9/secrets/token
        run.googleapis.com/container-dependencies: '{"web": ["side"]}'
    spec:
      containerConcurrency: 50
      timeoutSeconds: 120
      serviceAccountName: web@shop.iam.gserviceaccount.com
      nodeSelector: {run.googleapis.com/accelerator: nvidia-l4}
      containers:
        - name: web
          image: gcr.io/shop/web:v1
          command: [/web]
          args: ["--port", 8080]
          ports: [{name: h2c, containerPort: 8080}]
          env:
            - {name: MODE, value: prod}
            - {name: COUNT, value: 3}
            - {name: TOKEN, valueFrom: {secretKeyRef: {name: other, key: latest}}}
          resources: {limits: {cpu: "1", memory: 1Gi}}
          volumeMounts: [{name: keys, mountPath: /keys}]
          startupProbe: {periodSeconds: 5, failureThreshold: 3, tcpSocket: {port: 8080}}
          livenessProbe: {httpGet: {path: /ok, port: 8080, httpHeaders: [{name: a, value: b}]}}
        - name: side
          image: gcr.io/shop/side:v1
          livenessProbe: {grpc: {port: 5000, service: side}}
      volumes:
        - name: keys
          secret: {secretName: keys, defaultMode: 256, items: [{key: "1", path: key, mode: 292}]}
        - {name: scratch, emptyDir: {medium: Memory, sizeLimit: 64Mi}}
        - {name: share, nfs: {server: 10.0.0.1, path: /share, readOnly: true}}
        - name: bucket
          csi:
            driver: gcsfuse.run.googleapis.com
            readOnly: true
            volumeAttributes: {bucketName: shop, mountOptions: "implicit-dirs,uid=1"}
  traffic:
    - {latestRevision: true, percent: 100, tag: next, url: written-by-the-platform}
status: {observedGeneration: 3}
"""
SQL = {"name": "cloudsql", "mountPath": "/cloudsql"}
TEMPLATE = {
    "labels": {"tier": "front"},
    "annotations": {},
    "scaling": {"minInstanceCount": 2, "maxInstanceCount": 10},
    "executionEnvironment": "EXECUTION_ENVIRONMENT_GEN2",
    "vpcAccess": {
        "connector": "projects/shop/locations/x/connectors/c",
        "egress": "PRIVATE_RANGES_ONLY",
    },
    "sessionAffinity": True,
    "encryptionKey": "projects/k",
    "encryptionKeyRevocationAction": "SHUTDOWN",
    "encryptionKeyShutdownDuration": "7200s",
    "maxInstanceRequestConcurrency": 50,
    "timeout": "120s",
    "serviceAccount": "web@shop.iam.gserviceaccount.com",
    "nodeSelector": {"accelerator": "nvidia-l4"},
    "containers": [
        {
            "name": "web",
            "image": "gcr.io/shop/web:v1",
            "command": ["/web"],
            "args": ["--port", "8080"],
            "ports": [{"name": "h2c", "containerPort": 8080}],
            "env": [
                {"name": "MODE", "value": "prod"},
                {"name": "COUNT", "value": "3"},
                {
                    "name": "TOKEN",
                    "valueSource": {
                        "secretKeyRef": {"secret": "projects/9/secrets/token", "version": "latest"}
                    },
                },
            ],
            "resources": {
                "limits": {"cpu": "1", "memory": "1Gi"},
                "cpuIdle": False,
                "startupCpuBoost": True,
            },
            "volumeMounts": [{"name": "keys", "mountPath": "/keys"}, SQL],
            "startupProbe": {
                "periodSeconds": 5,
                "failureThreshold": 3,
                "tcpSocket": {"port": 8080},
            },
            "livenessProbe": {
                "httpGet": {
                    "path": "/ok",
                    "port": 8080,
                    "httpHeaders": [{"name": "a", "value": "b"}],
                }
            },
            "dependsOn": ["side"],
        },
        {
            "name": "side",
            "image": "gcr.io/shop/side:v1",
            "resources": {"cpuIdle": False, "startupCpuBoost": True},
            "volumeMounts": [SQL],
            "livenessProbe": {"grpc": {"port": 5000, "service": "side"}},
        },
    ],
    "volumes": [
        {
            "name": "keys",
            "secret": {
                "secret": "keys",
                "items": [{"path": "key", "version": "1", "mode": 292}],
                "defaultMode": 256,
            },
        },
        {"name": "scratch", "emptyDir": {"medium": "MEMORY", "sizeLimit": "64Mi"}},
        {"name": "share", "nfs": {"server": "10.0.0.1", "path": "/share", "readOnly": True}},
        {
            "name": "bucket",
            "gcs": {"bucket": "shop", "readOnly": True, "mountOptions": ["implicit-dirs", "uid=1"]},
        },
        {"name": "cloudsql", "cloudSqlInstance": {"instances": ["shop:asia:db", "shop:asia:db2"]}},
    ],
}


def load(tmp_path: Path, manifest: str | dict[str, Any], config: bytes = b"") -> RunManifest:
    text = manifest if isinstance(manifest, str) else yaml.dump(manifest)
    (tmp_path / "service.yaml").write_text(text)
    source = Source(
        application_directory=str(tmp_path), config=config, read_options=CloudRunOptions
    )
    return load_manifest(source, TARGET)


def find_faults(tmp_path: Path, manifest: str | dict[str, Any]) -> str:
    with pytest.raises(InvalidFileError) as caught:
        load(tmp_path, manifest)
    return str(caught.value)


def test_every_documented_field_has_its_counterpart(tmp_path: Path) -> None:
    manifest = load(tmp_path, FULL)

    assert manifest.body.pop("template") == TEMPLATE
    assert manifest.body == {
        "labels": {"team": "shop"},
        "annotations": {"example.com/owner": "shop"},
        "ingress": "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER",
        "launchStage": "BETA",
        "description": "the shop",
        "binaryAuthorization": {"useDefault": True, "breakglassJustification": "at night"},
        "scaling": {"minInstanceCount": 1, "maxInstanceCount": 20, "scalingMode": "AUTOMATIC"},
        "customAudiences": ["https://a.example.com"],
        "defaultUriDisabled": True,
        "invokerIamDisabled": False,
    }
    assert [(each.tag, each.revision) for each in manifest.traffic.tags] == [("next", "")]
    assert manifest.traffic.has_shares


def test_what_comes_out_is_what_the_api_takes(tmp_path: Path) -> None:
    service = load(tmp_path, FULL)
    job = load(tmp_path, make_job())

    assert run_schema.find_fault(service.body, run_schema.SERVICE) == ""
    assert run_schema.find_fault(job.body, run_schema.JOB) == ""
    assert job.body["template"]["template"] == {
        "maxRetries": 1,
        "containers": [{"image": "gcr.io/shop/batch:v1", "resources": {}}],
    }
    assert job.body["template"]["taskCount"] == 3


@pytest.mark.parametrize(
    ("name", "schema"), [("service", run_schema.SERVICE), ("job", run_schema.JOB)]
)
def test_an_export_is_a_manifest_without_what_only_the_platform_writes(
    tmp_path: Path, name: str, schema: Any
) -> None:
    """Its own labels and annotations say nothing, and the API refuses them."""
    manifest = load(tmp_path, (EXPORTS / f"{name}.yaml").read_text())

    assert run_schema.find_fault(manifest.body, schema) == ""
    template = manifest.body["template"]
    for given in (manifest.body, template):
        assert given["annotations"] == {}
    assert manifest.body["labels"] == {}
    assert list(template["labels"]) == ["client.knative.dev/nonce"]


def test_a_cpu_that_nobody_mentions_is_throttled_as_before(tmp_path: Path) -> None:
    """The second API gives CPU all the time when limits are set and nothing is said of it."""
    manifest = load(tmp_path, make_service(web={"resources": {"limits": {"cpu": "2"}}}))

    assert manifest.pod["containers"][0]["resources"] == {"limits": {"cpu": "2"}, "cpuIdle": True}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"web": {"imagePullPolicy": "Always"}}, "spec.template.spec.containers[0].imagePullPoli"),
        (
            {"web": {"resources": {"requests": {"cpu": "1"}}}},
            "spec.template.spec.containers[0].resources.requests",
        ),
        (
            {"web": {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "x"}}}]}},
            "spec.template.spec.containers[0].env[0].valueFrom.configMapKeyRef",
        ),
        ({"web": {"livenessProbe": {"exec": {"command": ["a"]}}}}, "livenessProbe.exec"),
        (
            {"template": {"metadata": {"annotations": {"run.googleapis.com/new-thing": "x"}}}},
            "spec.template.metadata.annotations['run.googleapis.com/new-thing']",
        ),
        (
            {"metadata": {"annotations": {"run.googleapis.com/function-target": "f"}}},
            "metadata.annotations['run.googleapis.com/function-target']",
        ),
        ({"metadata": {"labels": {"run.googleapis.com/x": "y"}}}, "metadata.labels"),
        ({"metadata": {"finalizers": ["a"]}}, "metadata.finalizers"),
        ({"runLatest": {"a": 1}}, "spec.runLatest"),
    ],
)
def test_a_field_without_a_counterpart_is_named(
    tmp_path: Path, changes: dict[str, Any], place: str
) -> None:
    assert place in find_faults(tmp_path, make_service(**changes))


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    manifest = make_service(
        metadata={"name": "Web_1", "namespace": "other"},
        template={"metadata": {"annotations": {"autoscaling.knative.dev/minScale": "many"}}},
        traffic=[{"latestRevision": True, "revisionName": "web-1"}],
    )

    said = find_faults(tmp_path, manifest)

    assert "metadata.name: not the name of a service: 'Web_1'" in said
    assert "metadata.namespace: is 'other', and the deploy target's project 'shop'" in said
    assert "must be a whole number: 'many'" in said
    assert "spec.traffic[0].revisionName: cannot be given together with latestRevision" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be one document, and there are 0"),
        ("a: 1\n---\nb: 2\n", "must be one document, and there are 2"),
        ("a: [", "line 2"),
        ("apiVersion: v1\nkind: Pod\n", "neither a service nor a job: apiVersion 'v1'"),
        ("[]", "the manifest must be an object"),
        ("apiVersion: serving.knative.dev/v1\nkind: Service\nspec: []\n", "spec: must be a map"),
        (f"a: {'x' * 1024 * 1024}", "has more than 1048576 bytes"),
    ],
)
def test_what_is_no_manifest_is_told(tmp_path: Path, text: str, said: str) -> None:
    assert said in find_faults(tmp_path, text)


def test_a_manifest_cannot_be_read_from_outside_of_the_repository(tmp_path: Path) -> None:
    folder = tmp_path / "application"
    folder.mkdir()
    (tmp_path / "elsewhere.yaml").write_text("secret: 1")
    (folder / "service.yaml").symlink_to("../elsewhere.yaml")
    source = Source(application_directory=str(folder), read_options=CloudRunOptions)

    with pytest.raises(InvalidFileError, match="leads out of the repository"):
        load_manifest(source)


def test_a_location_of_another_region_is_refused(tmp_path: Path) -> None:
    manifest = make_service(metadata={"labels": {"cloud.googleapis.com/location": "us-east1"}})

    assert "its location is 'us-east1'" in find_faults(tmp_path, manifest)
