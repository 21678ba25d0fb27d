# SPDX-License-Identifier: Apache-2.0
"""A small OCI registry: the part of the distribution API that pushing and pulling need.

As strict as real ones where it matters: content has the digest it is sent under, and a manifest
names only what is there. With `password` it gives out tokens, to anybody for reading unless it is
private.
"""

import base64
import hashlib
import json
import re
import ssl
from typing import Any, Final

from pipecd_test_support.web_server import Answer, Question, WebServer

_PATH: Final = re.compile(r"/v2/(?P<name>.+?)/(?P<kind>manifests|blobs|tags)/(?P<what>.+)")
USER: Final = "ada"


def digest_of(content: bytes) -> str:
    """The name of content."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class OciRegistry(WebServer):
    """Keeps blobs and manifests of any repository in memory."""

    def __init__(
        self,
        *,
        password: str = "",
        is_private: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(tls)
        self._is_private = is_private
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        """By repository and tag or digest: the type and the bytes."""
        self._password = password

    def put(self, name: str, reference: str, document: dict[str, Any]) -> str:
        """Keep a manifest as if somebody had pushed it; its digest."""
        content = json.dumps(document).encode()
        kept = (document["mediaType"], content)
        self.manifests[name, reference] = self.manifests[name, digest_of(content)] = kept
        return digest_of(content)

    def put_blob(self, content: bytes) -> str:
        self.blobs[digest_of(content)] = content
        return digest_of(content)

    def find(self, question: Question) -> Answer:
        if question.path == "/token":
            return self._token(question)
        found = _PATH.fullmatch(question.path)
        if found is None:
            return super().find(question)
        name, kind, what = found["name"], found["kind"], found["what"]
        writes = question.method in ("POST", "PUT")
        needed = f"repository:{name}:{'pull,push' if writes else 'pull'}"
        if self._password and not self._may(question, needed):
            challenge = f'Bearer realm="{self.url}/token",service="test",scope="{needed}"'
            return Answer(status=401, headers={"WWW-Authenticate": challenge})
        if kind == "tags":
            tags = [tag for of, tag in self.manifests if of == name and ":" not in tag]
            return Answer(body=json.dumps({"name": name, "tags": tags}).encode())
        if kind == "manifests":
            return self._manifest(question, name, what)
        if what.startswith("uploads"):
            return self._upload(question, name)
        given = super().find(question)
        if given.status != 404:
            return given
        blob = self.blobs.get(what)
        return Answer(status=404) if blob is None else Answer(body=blob)

    def _manifest(self, question: Question, name: str, reference: str) -> Answer:
        if question.method == "PUT":
            digest = digest_of(question.body)
            if reference.startswith("sha256:") and reference != digest:
                return Answer(status=400, body=b'{"errors": [{"code": "DIGEST_INVALID"}]}')
            if missing := self._missing(name, json.loads(question.body)):
                told = {"errors": [{"code": "MANIFEST_BLOB_UNKNOWN", "message": missing}]}
                return Answer(status=400, body=json.dumps(told).encode())
            kept = (question.headers["Content-Type"], question.body)
            self.manifests[name, reference] = self.manifests[name, digest] = kept
            return Answer(status=201, headers={"Docker-Content-Digest": digest})
        found = self.manifests.get((name, reference))
        if found is None or found[0] not in question.headers.get("Accept", ""):
            return Answer(status=404)
        headers = {"Content-Type": found[0], "Docker-Content-Digest": digest_of(found[1])}
        return Answer(body=found[1], headers=headers)

    def _missing(self, name: str, document: dict[str, Any]) -> str:
        blobs = [*document.get("layers", []), *([c] if (c := document.get("config")) else [])]
        for each in blobs:
            if len(self.blobs.get(each["digest"], b"")) != each["size"]:
                return str(each["digest"])
        for each in document.get("manifests", []):
            if (name, each["digest"]) not in self.manifests:
                return str(each["digest"])
        return ""

    def _upload(self, question: Question, name: str) -> Answer:
        if question.method == "POST":
            # Relative, and with a query of its own: both are allowed, and clients stumble.
            location = f"/v2/{name}/blobs/uploads/1?state=abc"
            return Answer(status=202, headers={"Location": location})
        digest = question.query["digest"][0]
        if question.query.get("state") != ["abc"] or digest != digest_of(question.body):
            return Answer(status=400, body=b'{"errors": [{"code": "DIGEST_INVALID"}]}')
        self.blobs[digest] = question.body
        return Answer(status=201)

    def _token(self, question: Question) -> Answer:
        if question.method != "GET":
            return Answer(status=405)  # clients that try OAuth first then ask as all do
        scope = question.query["scope"][0]
        login = base64.b64encode(f"{USER}:{self._password}".encode()).decode()
        known = question.headers.get("Authorization") == f"Basic {login}"
        if ("push" in scope or self._is_private) and not known:
            return Answer(status=401)
        return Answer(body=json.dumps({"token": scope}).encode())

    def _may(self, question: Question, needed: str) -> bool:
        given = question.headers.get("Authorization", "").removeprefix("Bearer ")
        return bool(given) and given.startswith(needed)
