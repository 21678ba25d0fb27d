# SPDX-License-Identifier: Apache-2.0
"""A server that behaves like Cloud Run's API, version 2, as far as its public reference tells.

`cloud_run_contract.yaml` has the requests it expects and the answers it gives, as facts of the
reference; a test replays them. Nothing depends on time: what takes a while takes a number of reads.
"""

import copy
import json
import re
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs

from pipecd_test_support.google_cloud import run_schema
from pipecd_test_support.web_server import Answer, Question, WebServer

LATEST: Final = "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST"
REVISION: Final = "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION"
NOT_OF_REVISIONS: Final = frozenset({"healthCheckDisabled"})
"""Fields of a template that the revision made of it does not have."""
TIME: Final = "2026-11-18T00:00:00.123456789Z"
RESOURCE: Final = re.compile(
    r"/v2/(?P<parent>projects/[^/]+/locations/[^/]+)/(?P<kind>services|jobs|operations)"
    r"(?:/(?P<name>[^/]+))?(?:/revisions(?:/(?P<revision>[^/]+))?)?"
)
TAG: Final = re.compile(r"[a-z]([a-z0-9-]{0,44}[a-z0-9])?")

Body = dict[str, Any]


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, http_status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.answer = make_error(http_status, code, message)


def make_error(http_status: int, code: str, message: str, **headers: str) -> Answer:
    """An error in the form of Google's APIs."""
    body = {"error": {"code": http_status, "status": code, "message": message}}
    return Answer(http_status, json.dumps(body).encode(), headers)


@dataclass(kw_only=True)
class PlannedFault:
    """What the server answers instead, a number of times."""

    matches: str
    """An expression that `METHOD /path` is searched for."""
    answer: Answer
    times: int = 1
    is_done_first: bool = False
    """Do what was asked, and lose the answer."""


@dataclass(kw_only=True)
class _Revision:
    body: Body
    config: Body
    polls: int
    end: str = "ready"
    message: str = ""


@dataclass(kw_only=True)
class FakeState:
    """What the server knows."""

    services: dict[str, Body] = field(default_factory=dict)
    revisions: dict[str, dict[str, _Revision]] = field(default_factory=dict)
    jobs: dict[str, Body] = field(default_factory=dict)
    operations: dict[str, Callable[[], Body]] = field(default_factory=dict)
    counter: int = 0


class FakeCloudRun(WebServer):
    """Cloud Run, and the endpoint that gives tokens for it."""

    def __init__(self) -> None:
        super().__init__()
        self.state = FakeState()
        self.lock = threading.RLock()
        self.polls_until_ready = 2
        """How often a revision is read before it is ready."""
        self.broken: dict[str, str] = {}
        """Images whose revisions fail, with the message."""
        self.hanging: set[str] = set()
        """Images whose revisions never get ready."""
        self.faults: list[PlannedFault] = []
        self.tokens: set[str] = set()
        self.token_requests: list[dict[str, list[str]]] = []
        self.hidden_reads = 0
        """How often something new is answered with 404, as a read that is too old does."""
        self.on_change: Callable[[Question], None] | None = None
        """Called after a write has been done, before it is answered."""
        self.before_change: Callable[[Question], None] | None = None
        """Called before a write is done."""
        self.on_read: Callable[[Question], None] | None = None
        """Called after something was read, before it is answered."""
        self._hidden: dict[str, int] = {}

    @property
    def token_address(self) -> str:
        return f"{self.url}/token"

    def count_writes(self, method: str, suffix: str) -> int:
        """How many requests of this kind have come."""
        return sum(each.startswith(method) and each.endswith(suffix) for each in self.asked)

    def release(self, service: str) -> None:
        """Let the revisions of a service get ready that hang."""
        with self.lock:
            self.hanging.clear()
            for each in self.state.revisions[service].values():
                each.end = "ready"

    def list_revisions(self, service: str) -> list[str]:
        """The names of a service's revisions, the oldest first."""
        return list(self.state.revisions.get(service, {}))

    def find(self, question: Question) -> Answer:
        if question.path == "/token":
            return self._give_token(question)
        if question.method != "GET" and self.before_change is not None:
            self.before_change(question)
        with self.lock:
            fault = self._find_fault(question)
            if fault is not None and not fault.is_done_first:
                return fault.answer
            answer = self._serve(question)
        tell = self.on_read if question.method == "GET" else self.on_change
        if tell is not None:
            tell(question)
        return answer if fault is None else fault.answer

    def _find_fault(self, question: Question) -> PlannedFault | None:
        for each in self.faults:
            if each.times > 0 and re.search(each.matches, f"{question.method} {question.path}"):
                each.times -= 1
                return each
        return None

    def _give_token(self, question: Question) -> Answer:
        self.token_requests.append(parse_qs(question.body.decode()))
        token = f"token-{len(self.token_requests)}"
        self.tokens.add(token)
        body = {
            "access_token": token,
            "expires_in": 3600,
            "token_type": "Bearer",
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        }
        return Answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _serve(self, question: Question) -> Answer:
        token = question.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            return make_error(401, "UNAUTHENTICATED", "Request had invalid credentials.")
        found = RESOURCE.fullmatch(question.path)
        if found is None:
            return make_error(404, "NOT_FOUND", "Not found.")
        try:
            body = self._dispatch(question, found)
        except RefusedError as error:
            return error.answer
        return Answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _dispatch(self, question: Question, found: re.Match[str]) -> Body:
        kind, name = found["kind"], found["name"]
        if kind == "operations":
            return self._read_operation(question.path.removeprefix("/v2/"))
        if "/revisions" in question.path:
            return self._read_revision(name, found["revision"])
        sent = json.loads(question.body) if question.body else {}
        if question.method == "GET":
            return self._read(kind, name, question)
        if question.method == "POST":
            key = "serviceId" if kind == "services" else "jobId"
            return self._create(found["parent"], kind, question.query[key][0], sent)
        if question.method == "PATCH":
            return self._patch(found["parent"], kind, name, sent, question.query)
        raise RefusedError(501, "UNIMPLEMENTED", "not part of the contract")

    # Reading

    def _read(self, kind: str, name: str | None, question: Question) -> Body:
        if name is None:
            return self._list(question)
        known = self.state.services if kind == "services" else self.state.jobs
        if name not in known or self._is_hidden(f"{kind}/{name}"):
            raise RefusedError(404, "NOT_FOUND", f"Resource '{name}' was not found.")
        self._reconcile(known[name], kind)
        return copy.deepcopy(known[name])

    def _list(self, question: Question) -> Body:
        size = int(question.query.get("pageSize", ["100"])[0])
        start = int(question.query.get("pageToken", ["0"])[0])
        every = list(self.state.services.values())
        page: Body = {"services": copy.deepcopy(every[start : start + size])}
        if start + size < len(every):
            page["nextPageToken"] = str(start + size)
        return page

    def _read_revision(self, service: str, name: str) -> Body:
        found = self.state.revisions.get(service, {}).get(name)
        if found is None or self._is_hidden(f"revisions/{name}"):
            raise RefusedError(404, "NOT_FOUND", f"Revision '{name}' was not found.")
        found.polls = max(0, found.polls - 1)
        self._settle_revision(self.state.services[service], found)
        return copy.deepcopy(found.body)

    def _read_operation(self, name: str) -> Body:
        if name not in self.state.operations:
            raise RefusedError(404, "NOT_FOUND", "Operation was not found.")
        return self.state.operations[name]()

    def _is_hidden(self, key: str) -> bool:
        left = self._hidden.get(key, 0)
        self._hidden[key] = max(0, left - 1)
        return left > 0

    # Writing

    def _create(self, parent: str, kind: str, name: str, sent: Body) -> Body:
        known = self.state.services if kind == "services" else self.state.jobs
        if name in known:
            raise RefusedError(409, "ALREADY_EXISTS", f"Resource '{name}' already exists.")
        made: Body = {
            "name": f"{parent}/{kind}/{name}",
            "uid": str(uuid.uuid4()),
            "generation": "0",
            "createTime": TIME,
            "uri": f"https://{name}.example.com",
        }
        self._hidden[f"{kind}/{name}"] = self.hidden_reads
        self._write(made, kind, name, sent)
        known[name] = made
        return self._operate(parent, kind, name)

    def _patch(
        self, parent: str, kind: str, name: str, sent: Body, query: dict[str, list[str]]
    ) -> Body:
        known = self.state.services if kind == "services" else self.state.jobs
        if name not in known:
            raise RefusedError(404, "NOT_FOUND", f"Resource '{name}' was not found.")
        current = known[name]
        if sent.get("etag") and sent["etag"] != current["etag"]:
            raise RefusedError(409, "ABORTED", f"Conflict for resource '{name}': version differs.")
        mask = query.get("updateMask", [""])[0]
        if mask:
            schema = run_schema.SERVICE
            user = {key: current[key] for key in schema if key in current}
            sent = {**user, **{key: sent[key] for key in mask.split(",") if key in sent}}
        self._write(current, kind, name, sent)
        return self._operate(parent, kind, name)

    def _write(self, current: Body, kind: str, name: str, sent: Body) -> None:
        schema = run_schema.SERVICE if kind == "services" else run_schema.JOB
        if fault := run_schema.find_fault(sent, schema):
            raise RefusedError(400, "INVALID_ARGUMENT", f"Invalid JSON payload received. {fault}")
        wanted = copy.deepcopy({k: v for k, v in sent.items() if k not in {"name", "etag"}})
        if kind == "services":
            self._plan_service(current, name, wanted)
        for key in [key for key in schema if key not in {"name", "etag"}]:
            current.pop(key, None)
        current.update(wanted)
        self.state.counter += 1
        current["etag"] = f'"etag-{self.state.counter}"'
        current["generation"] = str(int(current["generation"]) + 1)
        current["reconciling"] = True

    def _plan_service(self, current: Body, name: str, wanted: Body) -> None:
        template = wanted.get("template")
        if not template or not template.get("containers"):
            raise RefusedError(400, "INVALID_ARGUMENT", "template.containers: is required")
        _add_defaults(template)  # templates are compared as the platform understands them
        config = {key: value for key, value in template.items() if key != "revision"}
        known = self.state.revisions.get(name, {})
        revision = template.get("revision") or self._reuse(current, config, name)
        if not re.fullmatch(rf"{re.escape(name)}-[a-z0-9-]*[a-z0-9]", revision) or (
            len(revision) > 63
        ):
            raise RefusedError(400, "INVALID_ARGUMENT", f"template.revision: '{revision}'")
        if revision in known and known[revision].config != config:
            raise RefusedError(
                409,
                "ALREADY_EXISTS",
                f"Revision named '{revision}' with different configuration already exists.",
            )
        traffic = wanted.setdefault("traffic", [{"type": LATEST, "percent": 100}])
        self._check_traffic(traffic, {*known, revision})
        if revision not in known:
            self._make_revision(current, name, revision, config)
        current["latestCreatedRevision"] = f"{current['name']}/revisions/{revision}"

    def _reuse(self, current: Body, config: Body, name: str) -> str:
        latest = str(current.get("latestCreatedRevision", "")).rpartition("/")[2]
        known = self.state.revisions.get(name, {})
        if latest in known and known[latest].config == config:
            return latest
        return f"{name}-{len(known) + 1:05d}-abc"

    def _check_traffic(self, traffic: list[Body], known: set[str]) -> None:
        total = sum(each.get("percent", 0) for each in traffic)
        if total != 100:
            raise RefusedError(
                400, "INVALID_ARGUMENT", f"traffic: percents add up to {total}, must be 100"
            )
        tags = [each["tag"] for each in traffic if each.get("tag")]
        if len(tags) != len(set(tags)) or not all(TAG.fullmatch(tag) for tag in tags):
            raise RefusedError(400, "INVALID_ARGUMENT", f"traffic: tags {tags}")
        for each in traffic:
            if each.get("type") == LATEST and each.get("revision"):
                raise RefusedError(400, "INVALID_ARGUMENT", "traffic: latest with a revision")
            if each.get("type") == REVISION and each.get("revision") not in known:
                raise RefusedError(
                    400, "INVALID_ARGUMENT", f"Revision '{each.get('revision')}' not found."
                )

    def _make_revision(self, service: Body, name: str, revision: str, config: Body) -> None:
        image = config["containers"][0]["image"]
        message = next((said for each, said in self.broken.items() if each in image), "")
        hangs = any(each in image for each in self.hanging)
        body = {k: v for k, v in copy.deepcopy(config).items() if k not in NOT_OF_REVISIONS} | {
            "name": f"{service['name']}/revisions/{revision}",
            "uid": str(uuid.uuid4()),
            "service": name,
            "createTime": TIME,
            "logUri": f"https://console.cloud.google.com/logs/{revision}",
        }
        made = _Revision(
            body=body,
            config=copy.deepcopy(config),
            polls=self.polls_until_ready,
            end="failed" if message else "hanging" if hangs else "ready",
            message=message,
        )
        self._hidden[f"revisions/{revision}"] = self.hidden_reads
        self.state.revisions.setdefault(name, {})[revision] = made
        self._settle_revision(service, made)

    # What happens by itself

    def _settle_revision(self, service: Body, revision: _Revision) -> None:
        name = revision.body["name"].rpartition("/")[2]
        is_used = (
            any(
                (each.get("revision") == name and (each.get("percent") or each.get("tag")))
                for each in service.get("traffic", ())
            )
            or service.get("traffic", [{}])[0].get("type") == LATEST
        )
        if revision.polls or revision.end == "hanging":
            state, message = "CONDITION_PENDING", "Deploying revision."
        elif revision.end == "failed":
            state, message = "CONDITION_FAILED", revision.message
        else:
            state, message = "CONDITION_SUCCEEDED", ""
        conditions = [_make_condition("Ready", state, message)]
        conditions.append(_make_condition("ContainerHealthy", state, message))
        conditions.append(_make_condition("ResourcesAvailable", state, message))
        if state == "CONDITION_SUCCEEDED" and not is_used:
            conditions.append(
                {**_make_condition("Active", "CONDITION_FAILED", "Retired."), "severity": "INFO"}
            )
        else:
            conditions.append(_make_condition("Active", state, message))
        revision.body["conditions"] = conditions

    def _reconcile(self, resource: Body, kind: str) -> None:
        if not resource.get("reconciling"):
            return
        state, message = "CONDITION_SUCCEEDED", ""
        if kind == "services":
            name = resource["name"].rpartition("/")[2]
            latest = resource["latestCreatedRevision"].rpartition("/")[2]
            revision = self.state.revisions[name][latest]
            if revision.end == "hanging" or revision.polls:
                self._describe(resource, "CONDITION_RECONCILING", "Deploying revision.")
                return
            if revision.end == "failed":
                state, message = "CONDITION_FAILED", revision.message
            else:
                resource["latestReadyRevision"] = resource["latestCreatedRevision"]
                resource["trafficStatuses"] = copy.deepcopy(resource["traffic"])
        resource["reconciling"] = False
        resource["observedGeneration"] = resource["generation"]
        self._describe(resource, state, message)

    def _describe(self, resource: Body, state: str, message: str) -> None:
        resource["terminalCondition"] = _make_condition("Ready", state, message)
        resource["conditions"] = [
            _make_condition("RoutesReady", state, message),
            _make_condition("ConfigurationsReady", state, message),
        ]

    def _operate(self, parent: str, kind: str, name: str) -> Body:
        operation = f"{parent}/operations/{uuid.uuid4()}"
        known = self.state.services if kind == "services" else self.state.jobs

        def read() -> Body:
            resource = known[name]
            self._reconcile(resource, kind)
            answer: Body = {"name": operation, "metadata": {"name": resource["name"]}}
            if resource.get("reconciling"):
                return {**answer, "done": False}
            if resource["terminalCondition"]["state"] == "CONDITION_FAILED":
                said = resource["terminalCondition"]["message"]
                return {**answer, "done": True, "error": {"code": 9, "message": said}}
            return {**answer, "done": True, "response": copy.deepcopy(resource)}

        self.state.operations[operation] = read
        return {"name": operation, "metadata": {"name": known.get(name, {}).get("name", "")}}


def _make_condition(kind: str, state: str, message: str) -> Body:
    made = {"type": kind, "state": state, "lastTransitionTime": TIME}
    return {**made, "message": message} if message else made


def _add_defaults(template: Body) -> None:
    """What the platform adds to what was asked for."""
    template.setdefault("timeout", "300s")
    template.setdefault("serviceAccount", "1-compute@developer.gserviceaccount.com")
    template.setdefault("maxInstanceRequestConcurrency", 80)
    template.setdefault("scaling", {}).setdefault("maxInstanceCount", 100)
    for container in template["containers"]:
        container.setdefault("ports", [{"name": "http1", "containerPort": 8080}])
        limits = container.setdefault("resources", {}).setdefault("limits", {})
        limits.setdefault("memory", "512Mi")
        limits.setdefault("cpu", "1000m")
