# SPDX-License-Identifier: Apache-2.0
"""What moto's Lambda has not, added to it in the process that serves it.

* moto keeps only some fields of a configuration, and none of dead letters and logging: here all
  fields that CreateFunction and UpdateFunctionConfiguration take are kept and shown.
* In moto all versions share the place of their code: the image of an old version changes with the
  function. Here each has its own.
* moto's functions are ready at once. Here they take as many looks as a test wants (`slow`), or
  fail with a reason (`failing`).
* moto knows no provisioned concurrency, and its packages cannot be fetched back: both are here.
* moto ignores which alias a URL belongs to, and never refuses an alias whose two versions have
  different roles: tests of these look at what was sent (`calls`).
* moto publishes another version after every update, also after one that changes nothing; AWS does
  not. It is left so: whoever updates twice is seen.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote

import botocore.session
from moto.awslambda.models import LambdaFunction, lambda_backends
from moto.core.models import DEFAULT_ACCOUNT_ID
from werkzeug.wrappers import Response

from pipecd_test_support.aws.lab import REGION

Environ = dict[str, Any]
_KEPT = (
    *("DeadLetterConfig", "EphemeralStorage", "FileSystemConfigs", "ImageConfig", "KMSKeyArn"),
    *("LoggingConfig", "SnapStart", "TracingConfig"),
)
_PROVISIONED = re.compile(r"/2019-09-30/functions/([^/]+)/provisioned-concurrency/?")
_FUNCTION = re.compile(r"/\d{4}-\d{2}-\d{2}/(functions|tags)(/|$)")


class LambdaPlane:
    """Settings and memory of the parts that moto has not."""

    def __init__(self) -> None:
        self.slow = 0
        self.failing = ""
        self._provisioned: dict[tuple[str, str], dict[str, Any]] = {}
        self._complete()

    def order(self, order: Mapping[str, Any]) -> None:
        """Takes what a test wants of the next changes."""
        self.slow = order.get("slow", self.slow)
        self.failing = order.get("failing", self.failing)

    def answer(self, environ: Environ, parameters: Mapping[str, Any]) -> Response | None:
        """Returns the answer to what moto does not know; None for everything else."""
        path = environ["PATH_INFO"]
        if path == "/lab/code":
            return _send_code(environ)
        if found := _PROVISIONED.fullmatch(path):
            return self._provision(environ["REQUEST_METHOD"], unquote(found[1]), parameters)
        return None

    def _provision(self, method: str, name: str, parameters: Mapping[str, Any]) -> Response:
        key = (name, str(parameters.get("Qualifier")))
        if method == "PUT":
            count = parameters["ProvisionedConcurrentExecutions"]
            self._provisioned[key] = {
                "RequestedProvisionedConcurrentExecutions": count,
                "looks": self.slow,
                "reason": self.failing,
            }
        elif method == "DELETE":
            self._provisioned.pop(key, None)
            return _json(204, {})
        kept = self._provisioned.get(key)
        if kept is None:
            return _json(
                404, {"__type": "ProvisionedConcurrencyConfigNotFoundException", "message": "none"}
            )
        is_pending = kept["looks"] > 0
        kept["looks"] -= is_pending
        asked = kept["RequestedProvisionedConcurrentExecutions"]
        status = "IN_PROGRESS" if is_pending else "FAILED" if kept["reason"] else "READY"
        told = {
            "RequestedProvisionedConcurrentExecutions": asked,
            "AvailableProvisionedConcurrentExecutions": asked if status == "READY" else 0,
            "Status": status,
        }
        return _json(200, told | ({"StatusReason": kept["reason"]} if kept["reason"] else {}))

    def _complete(self) -> None:
        """Adds to moto's class what it lacks."""
        plane = self
        make, update = LambdaFunction.__init__, LambdaFunction.update_configuration
        show, set_code = LambdaFunction.get_configuration, LambdaFunction.update_function_code
        show_code = LambdaFunction.get_code

        def mark(function: Any, status: str) -> None:
            function.lab = {"looks": plane.slow, "reason": plane.failing, "status": status}
            plane.failing = ""

        def init(self: Any, *args: Any, **named: Any) -> None:
            make(self, *args, **named)
            spec = named.get("spec") or args[1]
            self.extra = {key: spec[key] for key in _KEPT if key in spec}
            mark(self, "State")

        def update_configuration(self: Any, changes: dict[str, Any]) -> dict[str, Any]:
            self.extra = {**self.extra, **{k: changes[k] for k in _KEPT if k in changes}}
            mark(self, "LastUpdateStatus")
            found: dict[str, Any] = update(self, changes)
            return found

        def update_function_code(self: Any, changes: dict[str, Any]) -> dict[str, Any]:
            self.code = dict(self.code)
            mark(self, "LastUpdateStatus")
            if changes.get("Architectures"):
                self.architectures = changes["Architectures"]
            found: dict[str, Any] = set_code(self, changes)
            return found

        def get_configuration(self: Any, on_create: bool = False) -> dict[str, Any]:
            shown = {**show(self, on_create), **self.extra}
            if self.package_type == "Image" and "ImageConfig" in shown:
                shown["ImageConfigResponse"] = {"ImageConfig": shown.pop("ImageConfig")}
            return {**shown, **_show_state(self)}

        def get_code(self: Any) -> dict[str, Any]:
            shown: dict[str, Any] = show_code(self)
            code = shown.get("Code", {})
            if "Location" in code:
                code["Location"] = f"/lab/code?name={self.function_name}&version={self.version}"
            return shown

        for name, function in (
            ("__init__", init),
            ("update_configuration", update_configuration),
            ("update_function_code", update_function_code),
            ("get_configuration", get_configuration),
            ("get_code", get_code),
        ):
            setattr(LambdaFunction, name, function)


def _show_state(function: Any) -> dict[str, Any]:
    lab = function.lab
    key = lab["status"]
    if lab["looks"] > 0:
        lab["looks"] -= 1
        return {key: "Pending" if key == "State" else "InProgress"}
    if lab["reason"]:
        return {key: "Failed", f"{key}Reason": lab["reason"], f"{key}ReasonCode": "InvalidImage"}
    return {}


def _send_code(environ: Environ) -> Response:
    asked = parse_qs(environ["QUERY_STRING"])
    backend = lambda_backends[DEFAULT_ACCOUNT_ID][REGION]
    version = asked["version"][0]
    function = backend.get_function(asked["name"][0], None if version == "$LATEST" else version)
    return Response(function.code_bytes, 200, content_type="application/zip")


def place_locations(answer: bytes, host: str) -> bytes:
    """Returns an answer whose packages are at this server."""
    return answer.replace(b'"/lab/code?', f'"http://{host}/lab/code?'.encode())


def read_rest_action(environ: Environ, body: bytes) -> tuple[str, dict[str, Any]] | None:
    """Returns operation and parameters of a request to Lambda; None for another request."""
    path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
    if not _FUNCTION.match(path):
        return None
    for name, wanted, pattern in _list_operations():
        found = pattern.fullmatch(path)
        if wanted != method or found is None:
            continue
        query = {key: values[0] for key, values in parse_qs(environ["QUERY_STRING"]).items()}
        try:
            told = json.loads(body or b"{}")
        except ValueError:
            told = {}
        words = {key: unquote(value) for key, value in found.groupdict().items()}
        return name, {**(told if isinstance(told, dict) else {}), **query, **words}
    return None


@cache
def _list_operations() -> list[tuple[str, str, re.Pattern[str]]]:
    model = botocore.session.Session().get_service_model("lambda")
    found = []
    for name in model.operation_names:
        http = model.operation_model(name).http
        uri = http["requestUri"].partition("?")[0]
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", uri).rstrip("/")
        found.append((name, http["method"], re.compile(f"{pattern}/?")))
    return found


def _json(status: int, body: Mapping[str, Any]) -> Response:
    return Response(json.dumps(body), status, content_type="application/json")
