# SPDX-License-Identifier: Apache-2.0
"""A webhook that the API server asks before it takes an object: it allows, denies or hangs."""

import json
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pipecd_test_support.kubernetes.api import WAIT_SECONDS, Object
from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster
from pipecd_test_support.web_server import Answer, Question, WebServer

_VERSION: Final = "admissionregistration.k8s.io/v1"
_KIND: Final = "ValidatingWebhookConfiguration"
LIMIT_SECONDS: Final = 1
"""How long the API server waits for the webhook, the shortest that it takes."""


class Webhook(WebServer):
    """Answers as a test sets it."""

    def __init__(self, cluster: RealCluster) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(cluster.folder / "server.pem", cluster.folder / "server.key")
        super().__init__(tls)
        self.denial = ""
        """Why objects are denied; empty while they are allowed."""
        self.refuses_dry_runs = False
        """Whether it denies what is only tried, as one does that would have side effects."""
        self.answers = threading.Event()
        """Cleared, it hangs."""
        self.answers.set()

    def find(self, question: Question) -> Answer:
        asked = json.loads(question.body)
        self.answers.wait(LIMIT_SECONDS * 10)
        denial = self.denial
        if self.refuses_dry_runs and asked["request"].get("dryRun"):
            denial = f"no dry runs here: {json.dumps(asked['request']['object'])}"
        decision: dict[str, Any] = {"uid": asked["request"]["uid"], "allowed": not denial}
        if denial:
            decision["status"] = {"code": 403, "message": denial}
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": decision,
        }
        return Answer(body=json.dumps(review).encode())


@contextmanager
def serving_webhook(namespace: Namespace, probe: Object) -> Iterator[Webhook]:
    """Serve a webhook for the objects of one namespace that are of the probe's kind."""
    cluster = namespace.cluster
    name = f"webhook.{namespace.name}.test"
    with Webhook(cluster) as webhook:
        hook = {
            "name": name,
            "clientConfig": {
                "url": f"{webhook.url}/validate",
                "caBundle": b64encode(cluster.authority.read_bytes()).decode(),
            },
            "rules": [_make_rule(cluster, probe)],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "timeoutSeconds": LIMIT_SECONDS,
        }
        metadata = {"name": name}
        body = {"apiVersion": _VERSION, "kind": _KIND, "metadata": metadata, "webhooks": [hook]}
        cluster.api.create(body)
        try:
            _wait_asked(namespace, webhook, probe)
            yield webhook
        finally:
            webhook.answers.set()
            cluster.api.delete(_VERSION, _KIND, name)


def _make_rule(cluster: RealCluster, probe: Object) -> Object:
    group, _, _ = probe["apiVersion"].rpartition("/")
    path = cluster.api.find_path(probe["apiVersion"], probe["kind"])
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [path.rpartition("/")[2]],
    }


def _wait_asked(namespace: Namespace, webhook: Webhook, probe: Object) -> None:
    """Wait until the API server knows the webhook: it learns of it a moment after it is made."""
    metadata = {**probe["metadata"], "namespace": namespace.name}
    path = namespace.api.find_path(probe["apiVersion"], probe["kind"], namespace.name)
    over = time.monotonic() + WAIT_SECONDS
    while not webhook.asked:
        assert time.monotonic() < over, "the API server does not ask the webhook"
        namespace.api.request("POST", path, {**probe, "metadata": metadata}, dryRun="All")
