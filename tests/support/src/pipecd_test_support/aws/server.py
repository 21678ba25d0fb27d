# SPDX-License-Identifier: Apache-2.0
"""moto as a process: prints its port, serves until it is killed.

In front of moto stands what moto has not (its known gaps), and what a test wants to go wrong:

* moto runs no tasks: `runningCount`, `pendingCount` and `computedDesiredCount` stay empty, so no
  service is ever stable. Here a task set has as many running tasks as it should, unless the image
  of its task definition contains `broken`; then they stay pending, and the set is STABILIZING.
* moto knows no client tokens: a repeated CreateTaskSet, CreateService or RunTask makes another one.
  Here the answer to the first is given again, as AWS does.
* moto deletes a task set at once; AWS drains it first. A test that needs it says so (`drain`).
* moto answers CreateTaskSet and RunTask with 500, and keeps the task set, when a container has no
  `memory`, or the launch type is EC2 and no instance is there: tests have memory and FARGATE.
* moto keeps only some fields of a service: what was sent is checked instead (`calls`). Those that
  AWS tells of a service's deployments are kept here.

What moto's Lambda has not is in `lambda_plane`. The faults are set with POST /lab, see `AwsLab`.
"""

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.test import run_wsgi_app
from werkzeug.wrappers import Response

from pipecd_test_support.aws.lambda_plane import LambdaPlane, place_locations, read_rest_action

Environ = dict[str, Any]
MOST_BODY = 10 * 1024 * 1024
DEPLOYED = ("serviceConnectConfiguration", "volumeConfigurations", "vpcLatticeConfigurations")


class LabApp:
    """A WSGI application: moto behind faults and a data plane."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._faults: list[dict[str, Any]] = []
        self._calls: list[dict[str, Any]] = []
        self._tokens: dict[str, tuple[int, bytes]] = {}
        self._drained: dict[str, dict[str, Any]] = {}
        self._deployed: dict[str, dict[str, Any]] = {}
        self._drains = False
        self._lambda = LambdaPlane()
        self._told_service = b""

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(min(int(environ.get("CONTENT_LENGTH") or 0), MOST_BODY))
        if environ["PATH_INFO"] == "/lab":
            return self._control(environ, body)(environ, start_response)
        action, parameters = read_action(environ, body)
        with self._lock:
            if action:
                self._calls.append(
                    {"action": action, "parameters": parameters, "key": read_scope(environ, 0)}
                )
            fault = self._take_fault(action)
        is_json = "HTTP_X_AMZ_TARGET" in environ or "Action" not in parameters
        if fault is not None and action.startswith("S3:") and fault["kind"] != "lost":
            return refuse_s3(fault)(environ, start_response)
        if fault is not None and (refusal := refuse(fault, is_json=is_json)) is not None:
            return refusal(environ, start_response)
        if (known := self._lambda.answer(environ, parameters)) is not None:
            status, headers, answer = known.status_code, list(known.headers), known.data
        else:
            status, headers, answer = self._forward(environ, body, action, parameters)
        answer = place_locations(answer, environ.get("HTTP_HOST", ""))
        if fault is not None and fault["kind"] == "lost":
            return Response(b"{}", 500)(environ, start_response)
        if fault is not None and fault["kind"] == "hold":
            time.sleep(60)  # the caller is killed meanwhile
        if fault is not None and fault["kind"] == "hide":
            answer = json.dumps({"services": [], "taskSets": [], "failures": []}).encode()
        if action == "DescribeServices" and fault is None and status == 200:
            self._told_service = answer
        if fault is not None and fault["kind"] == "stale":
            answer = self._told_service
        if fault is not None and fault["kind"] == "untagged":
            answer = hide_tags(answer)
        length = {k.lower(): v for k, v in headers}.get("content-length", "")
        headers = [(k, v) for k, v in headers if k.lower() != "content-length"]
        response = Response(answer, status, headers)
        if environ["REQUEST_METHOD"] == "HEAD":
            response.headers["Content-Length"] = length  # of what is not sent
        return response(environ, start_response)

    def _control(self, environ: Environ, body: bytes) -> Response:
        with self._lock:
            if environ["REQUEST_METHOD"] == "POST":
                order = json.loads(body)
                self._faults += order.get("faults", [])
                self._drains = order.get("drain", self._drains)
                if not self._drains:
                    self._drained.clear()
                self._lambda.order(order)
                if order.get("forget"):
                    self._calls.clear()
                    self._faults.clear()
                    self._lambda.order({"slow": 0, "failing": ""})
            return Response(json.dumps(self._calls), 200, content_type="application/json")

    def _take_fault(self, action: str) -> dict[str, Any] | None:
        for fault in self._faults:
            if fault["action"] != action:
                continue
            if fault.get("after", 0) > 0:
                fault["after"] -= 1
                continue
            if fault["count"] > 0:
                fault["count"] -= 1
                return fault
        return None

    def _forward(
        self, environ: Environ, body: bytes, action: str, parameters: Mapping[str, Any]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        token = parameters.get("clientToken")
        key = f"{read_region(environ)}/{action}/{token}"
        json_type = [("Content-Type", "application/x-amz-json-1.1")]
        if token and key in self._tokens:
            return self._tokens[key][0], json_type, self._tokens[key][1]
        if action == "DeleteTaskSet" and self._drains:
            self._remember_drained(environ, parameters)
        status, headers, answer = self._ask_moto(environ, body)
        if token and status == 200:
            self._tokens[key] = (status, answer)
        if status == 200 and action in {"CreateService", "UpdateService"}:
            made = json.loads(answer)["service"]["serviceArn"]
            given = {key: parameters[key] for key in DEPLOYED if key in parameters}
            self._deployed[made] = self._deployed.get(made, {}) | given
        if status == 200 and action in {"DescribeServices", "DescribeTaskSets"}:
            told = json.loads(answer)
            self._run_tasks(environ, told)
            if action == "DescribeTaskSets":
                told["taskSets"] += [
                    each
                    for each in self._drained.values()
                    if each["serviceArn"].endswith(f"/{parameters['service'].rpartition('/')[2]}")
                    and each["clusterArn"].endswith(f"/{parameters.get('cluster', '')}")
                ]
            answer = json.dumps(told).encode()
        return status, headers, answer

    def _ask_moto(self, environ: Environ, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        inner = {**environ, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        chunks, status, headers = run_wsgi_app(self._moto, inner, buffered=True)
        return int(status.split()[0]), list(headers), b"".join(chunks)

    def _ask(self, environ: Environ, action: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        target = environ["HTTP_X_AMZ_TARGET"].partition(".")[0]
        inner = {**environ, "HTTP_X_AMZ_TARGET": f"{target}.{action}"}
        _, _, answer = self._ask_moto(inner, json.dumps(parameters).encode())
        found: dict[str, Any] = json.loads(answer)
        return found

    def _remember_drained(self, environ: Environ, parameters: Mapping[str, Any]) -> None:
        asked = {k: parameters[k] for k in ("cluster", "service")}
        told = self._ask(environ, "DescribeTaskSets", {**asked, "include": ["TAGS"]})
        for each in told.get("taskSets", []):
            if each["taskSetArn"] == parameters["taskSet"]:
                self._drained[each["taskSetArn"]] = {**each, "status": "DRAINING"}

    def _run_tasks(self, environ: Environ, told: dict[str, Any]) -> None:
        for service in told.get("services", []):
            self._fill_service(environ, service)
        for task_set in told.get("taskSets", []):
            service = {"clusterArn": task_set["clusterArn"], "serviceArn": task_set["serviceArn"]}
            found = self._ask(
                environ,
                "DescribeServices",
                {"cluster": service["clusterArn"], "services": [service["serviceArn"]]},
            )["services"]
            self._fill_task_set(environ, task_set, found[0] if found else {})

    def _fill_service(self, environ: Environ, service: dict[str, Any]) -> None:
        sets = service.get("taskSets") or []
        for task_set in sets:
            self._fill_task_set(environ, task_set, service)
        desired = service.get("desiredCount", 0)
        if service.get("deploymentController", {}).get("type") == "EXTERNAL":
            service["runningCount"] = sum(each["runningCount"] for each in sets)
            service["pendingCount"] = sum(each["pendingCount"] for each in sets)
            return
        is_broken = self._is_broken(environ, service.get("taskDefinition", ""))
        service["runningCount"] = 0 if is_broken else desired
        service["pendingCount"] = desired - service["runningCount"]
        for deployment in service.get("deployments") or []:
            deployment |= {
                "runningCount": service["runningCount"],
                "pendingCount": service["pendingCount"],
                "desiredCount": desired,
                "taskDefinition": service.get("taskDefinition"),
                "failedTasks": 3 if is_broken else 0,
                "rolloutState": "IN_PROGRESS" if is_broken else "COMPLETED",
                **self._deployed.get(service["serviceArn"], {}),
            }

    def _fill_task_set(
        self, environ: Environ, task_set: dict[str, Any], service: Mapping[str, Any]
    ) -> None:
        share = float((task_set.get("scale") or {}).get("value", 100.0))
        wanted = math.ceil(service.get("desiredCount", 0) * share / 100)
        is_broken = self._is_broken(environ, task_set.get("taskDefinition", "")) and wanted > 0
        task_set |= {
            "computedDesiredCount": wanted,
            "runningCount": 0 if is_broken else wanted,
            "pendingCount": wanted if is_broken else 0,
            "stabilityStatus": "STABILIZING" if is_broken else "STEADY_STATE",
        }

    def _is_broken(self, environ: Environ, task_definition: str) -> bool:
        if not task_definition:
            return False
        found = self._ask(environ, "DescribeTaskDefinition", {"taskDefinition": task_definition})
        containers = found.get("taskDefinition", {}).get("containerDefinitions", [])
        return any("broken" in each.get("image", "") for each in containers)


def read_region(environ: Environ) -> str:
    """Returns the region that a call was signed for; tokens are those of one region."""
    return read_scope(environ, 2)


def read_scope(environ: Environ, part: int) -> str:
    """Returns a part of what a call was signed for: 0 is the key's id, 2 the region."""
    scope = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].split("/")
    return scope[part] if len(scope) > part else ""


def read_action(environ: Environ, body: bytes) -> tuple[str, dict[str, Any]]:
    """Returns the action of a request, of any protocol, and what it says."""
    if (found_rest := read_rest_action(environ, body)) is not None:
        return found_rest
    if "/s3/aws4_request" in environ.get("HTTP_AUTHORIZATION", ""):
        return f"S3:{environ['REQUEST_METHOD']}", {"path": environ["PATH_INFO"]}
    if target := environ.get("HTTP_X_AMZ_TARGET", ""):
        try:
            found = json.loads(body or b"{}")
        except ValueError:
            found = {}
        return target.rpartition(".")[2], found if isinstance(found, dict) else {}
    form = {key: values[0] for key, values in parse_qs(body.decode(errors="replace")).items()}
    return form.get("Action", ""), form


def refuse(fault: Mapping[str, Any], *, is_json: bool) -> Response | None:
    """Returns the answer of a fault that keeps the call from moto, None for another fault."""
    match fault["kind"]:
        case "throttle":
            status, code, text = 400, "ThrottlingException", "Rate exceeded"
        case "deny":
            who = "arn:aws:iam::123456789012:user/piped"
            service = fault.get("service", "ecs" if is_json else "elasticloadbalancing")
            right = f"{service}:{fault['action']}"
            status, code = 400, "AccessDeniedException"
            text = f"User: {who} is not authorized to perform: {right} on resource: *"
        case "fail":
            status, code, text = 503, "ServerException", "Service is unavailable"
        case "refuse":
            status, code = 400, fault["code"]
            text = fault.get("message", "refused by the lab")
        case _:
            return None
    if is_json:
        body = json.dumps({"__type": code, "message": text})
        return Response(body, status, content_type="application/x-amz-json-1.1")
    said = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{text}</Message></Error>"
    body = f"<ErrorResponse>{said}<RequestId>lab</RequestId></ErrorResponse>"
    return Response(body, status, content_type="text/xml")


def hide_tags(answer: bytes) -> bytes:
    """Returns the answer of GetFunction to somebody without the right lambda:ListTags."""
    told = json.loads(answer)
    told.pop("Tags", None)
    said = "not authorized to perform: lambda:ListTags"
    return json.dumps(
        {**told, "TagsError": {"ErrorCode": "AccessDenied", "Message": said}}
    ).encode()


def refuse_s3(fault: Mapping[str, Any]) -> Response:
    """Returns the answer of a fault of a bucket: `deny`, `fail`, or `hold` until nobody waits."""
    status, code = {"deny": (403, "AccessDenied"), "fail": (503, "SlowDown")}.get(
        fault["kind"], (500, "InternalError")
    )
    if fault["kind"] == "hold":
        time.sleep(60)  # the caller gives up meanwhile
    said = f"<Error><Code>{code}</Code><Message>by the lab</Message></Error>"
    return Response(said, status, content_type="application/xml")


def main() -> None:
    server = make_server("127.0.0.1", 0, LabApp(), threaded=True)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
