# SPDX-License-Identifier: Apache-2.0
"""Looks at a cluster from outside, and changes it, as a test does; not the plugin's client.

Every call blocks: in a test with a loop that must go on, `await asyncio.to_thread(api.wait, …)`.
"""

import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx2

Object: TypeAlias = dict[str, Any]
"""An object of the API, as JSON has it."""

WAIT_SECONDS: Final = 30.0
"""How long any one wait may take, on the slowest machine."""
TOO_MANY: Final = 429
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


class RefusedError(Exception):
    """The API server does not do what was asked."""

    def __init__(self, method: str, path: str, response: httpx2.Response) -> None:
        super().__init__(f"{method} {path}: {response.status_code} {response.text[:500]}")
        self.status = response.status_code


class Api:
    """The API of one cluster, with an administrator's rights or those of a token."""

    CONNECTION_ERRORS: Final = (httpx2.TransportError,)
    """What is raised when the server cannot be reached."""

    def __init__(
        self,
        server: str,
        *,
        authority: Path,
        certificate: tuple[Path, Path] | None = None,
        token: str = "",
        throttled_seconds: float = WAIT_SECONDS,
    ) -> None:
        """`throttled_seconds`: how long a request that the server throttles is retried."""
        tls = ssl.create_default_context(cafile=str(authority))
        if certificate is not None:
            tls.load_cert_chain(*map(str, certificate))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.Client(
            base_url=server, verify=tls, headers=headers, timeout=WAIT_SECONDS, trust_env=False
        )
        self._places: dict[tuple[str, str], tuple[str, bool]] = {}
        self._throttled_seconds = throttled_seconds

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        **parameters: str,
    ) -> Object:
        """Return the answer to one request. Raises RefusedError.

        One that is throttled, as while the server takes up a new kind of object, is retried.
        """
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type} if body is not None else {}
        deadline = time.monotonic() + self._throttled_seconds
        while True:
            response = self._client.request(
                method, path, content=content, headers=headers, params=parameters
            )
            if response.status_code != TOO_MANY or time.monotonic() >= deadline:
                break
            time.sleep(float(response.headers.get("Retry-After", 1)))
        if response.is_error:
            raise RefusedError(method, path, response)
        found = response.json() if "json" in response.headers.get("Content-Type", "") else {}
        assert isinstance(found, dict)
        return found

    def read_text(self, path: str, **parameters: str) -> str:
        """Return an answer that is a text, e.g. the log of a pod. Raises RefusedError."""
        response = self._client.get(path, params=parameters)
        if response.is_error:
            raise RefusedError("GET", path, response)
        return response.text

    def find_path(self, api_version: str, kind: str, namespace: str = "", name: str = "") -> str:
        """Return the path of an object, or of all objects of a kind when it has no name."""
        base, plural, is_namespaced = self._find_place(api_version, kind)
        within = f"/namespaces/{namespace}" if is_namespaced and namespace else ""
        return f"{base}{within}/{plural}" + (f"/{name}" if name else "")

    def _find_place(self, api_version: str, kind: str) -> tuple[str, str, bool]:
        base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if (api_version, kind) not in self._places:
            for each in self.request("GET", base)["resources"]:
                if "/" not in each["name"]:
                    place = (each["name"], each["namespaced"])
                    self._places[api_version, each["kind"]] = place
        return base, *self._places[api_version, kind]

    def create(self, body: Object) -> Object:
        """Create an object."""
        metadata = body["metadata"]
        path = self.find_path(body["apiVersion"], body["kind"], metadata.get("namespace", ""))
        return self.request("POST", path, body)

    def apply(self, body: Object, *, manager: str = "test") -> Object:
        """Apply an object as `kubectl apply --server-side --force-conflicts` does."""
        metadata = body["metadata"]
        namespace = metadata.get("namespace", "")
        path = self.find_path(body["apiVersion"], body["kind"], namespace, metadata["name"])
        return self.request(
            "PATCH", path, body, content_type=APPLY_PATCH, fieldManager=manager, force="true"
        )

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return an object; None when it is not there."""
        try:
            return self.request("GET", self.find_path(api_version, kind, namespace, name))
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    def find_all(
        self, api_version: str, kind: str, namespace: str = "", *, labels: str = ""
    ) -> list[Object]:
        """Return all objects of a kind, in one namespace or all."""
        path = self.find_path(api_version, kind, namespace)
        items = self.request("GET", path, labelSelector=labels)["items"]
        assert isinstance(items, list)
        return [{"apiVersion": api_version, "kind": kind, **each} for each in items]

    def patch(
        self, api_version: str, kind: str, name: str, namespace: str, change: Object
    ) -> Object:
        """Merge a change into an object."""
        path = self.find_path(api_version, kind, namespace, name)
        return self.request("PATCH", path, change, content_type=MERGE_PATCH)

    def delete(self, api_version: str, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object, and what it owns in the background."""
        path = self.find_path(api_version, kind, namespace, name)
        self.request("DELETE", path, propagationPolicy="Background")

    def wait(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        is_right: Callable[[Object | None], bool],
        limit_seconds: float = WAIT_SECONDS,
    ) -> Object:
        """Wait until an object is as it should be; return it, empty when it is gone.

        Raises AssertionError with its last state when it takes too long.
        """
        path = self.find_path(api_version, kind, namespace)
        selector = {"fieldSelector": f"metadata.name={name}"}
        found = self._wait(
            path, selector, lambda all_: is_right(all_[0] if all_ else None), limit_seconds
        )
        return found[0] if found else {}

    def wait_all(
        self,
        api_version: str,
        kind: str,
        namespace: str = "",
        *,
        labels: str = "",
        are_right: Callable[[list[Object]], bool],
        limit_seconds: float = WAIT_SECONDS,
    ) -> list[Object]:
        """Wait until the objects of a kind are as they should be; return them. Raises as `wait`."""
        path = self.find_path(api_version, kind, namespace)
        return self._wait(path, {"labelSelector": labels}, are_right, limit_seconds)

    def _wait(
        self,
        path: str,
        selector: dict[str, str],
        are_right: Callable[[list[Object]], bool],
        limit_seconds: float,
    ) -> list[Object]:
        last: list[Object] = []
        for last in self._follow(path, selector, limit_seconds):
            if are_right(last):
                return last
        shown = json.dumps([[each["metadata"]["name"], each.get("status")] for each in last])
        raise AssertionError(f"{path} {selector}: not right after {limit_seconds} s: {shown}")

    def _follow(
        self, path: str, selector: dict[str, str], limit_seconds: float
    ) -> Iterator[list[Object]]:
        """Yield the selected objects as they are now, and after every change, up to the limit."""
        over = time.monotonic() + limit_seconds
        while (rest_seconds := over - time.monotonic()) > 0:
            listed = self.request("GET", path, None, **selector)
            found = {each["metadata"]["uid"]: each for each in listed["items"]}
            yield list(found.values())
            watching = {
                **selector,
                "watch": "true",
                "resourceVersion": listed["metadata"]["resourceVersion"],
                "timeoutSeconds": str(max(1, round(rest_seconds))),
            }
            limit = httpx2.Timeout(WAIT_SECONDS, read=rest_seconds + WAIT_SECONDS)
            with self._client.stream("GET", path, params=watching, timeout=limit) as events:
                for line in events.iter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    changed = event["object"]
                    found.pop(changed["metadata"]["uid"], None)
                    if event["type"] != "DELETED":
                        found[changed["metadata"]["uid"]] = changed
                    yield list(found.values())
