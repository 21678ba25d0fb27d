# SPDX-License-Identifier: Apache-2.0
"""What simulated pods do: the stages that kwok moves them through.

A pod does what its annotation `pipecd.test/pod` says, else what a word in the tag of an image of it
says (`web:2.0-crash`), else it runs:

    run      becomes ready at once; the pod of a Job completes
    slow     runs and is not ready, until a test sets the annotation to `run`
    crash    CrashLoopBackOff after an exit with 1; the pod of a Job fails
    missing  ImagePullBackOff: it waits for an image that is not there
    stuck    runs, and does not go away when it is deleted (by annotation only)

The annotation may be set or changed at any time, by the template or on the pod itself. The real
scheduler runs: a pod that must stay unscheduled names a node that there is not (`nodeSelector`).
"""

import json
from typing import Any, Final

ANNOTATION: Final = "pipecd.test/pod"
MESSAGE_ANNOTATION: Final = "pipecd.test/message"
"""What the container of a crashed pod said last, when it is set."""

_WANTED: Final = (
    f'(.metadata.annotations["{ANNOTATION}"]'
    ' // ([.spec.containers[].image | capture(":[^/]*(?<word>crash|slow|missing)").word] | first)'
    ' // "run")'
)
_OF_JOB: Final = '([.metadata.ownerReferences[]? | select(.kind == "Job")] | length > 0)'
_ENDED: Final = '(.status.phase == "Succeeded" or .status.phase == "Failed")'
_READY: Final = (
    '([.status.conditions[]? | select(.type == "Ready" and .status == "True")] | length > 0)'
)


def write_stages() -> str:
    """Return the stages of pods as kwok reads them: documents of YAML, each in JSON."""
    crashed = _has_container('.state.waiting.reason == "CrashLoopBackOff"')
    missing = _has_container('.state.waiting.reason == "ImagePullBackOff"')
    idle = _has_container(".state.running and (.ready | not)")
    runs = f'({_WANTED} == "run" or {_WANTED} == "stuck") and ({_ENDED} | not)'
    stages = [
        _stage(
            "pod-ready", f"{runs} and ({_READY} | not)", _status(_RUNNING % "true", is_ready=True)
        ),
        _stage("pod-complete", f"{runs} and {_OF_JOB} and {_READY}", _ended("Succeeded", code=0)),
        _stage("pod-slow", f'{_WANTED} == "slow" and ({idle} | not)', _status(_RUNNING % "false")),
        _stage(
            "pod-crash",
            f'{_WANTED} == "crash" and ({crashed} | not) and ({_OF_JOB} | not)',
            _status(_CRASHED),
            event=("BackOff", "Back-off restarting failed container"),
        ),
        _stage(
            "pod-fail",
            f'{_WANTED} == "crash" and {_OF_JOB} and ({_ENDED} | not)',
            _ended("Failed", code=1),
        ),
        _stage(
            "pod-missing",
            f'{_WANTED} == "missing" and ({missing} | not)',
            _status(_MISSING, phase="Pending"),
            event=("Failed", "Error: ImagePullBackOff"),
        ),
        _stage("pod-delete", f'{_WANTED} != "stuck"', None, is_deleted=True),
    ]
    return "---\n".join(f"{json.dumps(stage)}\n" for stage in stages)


def _has_container(state: str) -> str:
    return f"([.status.containerStatuses[]? | select({state})] | length > 0)"


def _stage(
    name: str,
    condition: str,
    status: str | None,
    *,
    is_deleted: bool = False,
    event: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Return a stage for living pods, or for those that are being deleted, that are so."""
    following: dict[str, Any] = {"delete": True} if status is None else {"statusTemplate": status}
    if event is not None:
        following["event"] = {"type": "Warning", "reason": event[0], "message": event[1]}
    exists = "Exists" if is_deleted else "DoesNotExist"
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {
                "matchExpressions": [
                    {"key": ".metadata.deletionTimestamp", "operator": exists},
                    {
                        "key": f'if {condition} then "yes" else "no" end',
                        "operator": "In",
                        "values": ["yes"],
                    },
                ]
            },
            "next": following,
        },
    }


_RUNNING: Final = """
    ready: %s
    started: true
    restartCount: 0
    state:
      running:
        startedAt: {{ $now | Quote }}"""

_CRASHED: Final = """
    ready: false
    started: false
    restartCount: 3
    state:
      waiting:
        reason: CrashLoopBackOff
        message: "back-off 40s restarting failed container={{ .name }}"
    lastState:
      terminated:
        exitCode: 1
        reason: Error
        message: {{ $message | Quote }}
        startedAt: {{ $now | Quote }}
        finishedAt: {{ $now | Quote }}"""

_MISSING: Final = """
    ready: false
    started: false
    restartCount: 0
    state:
      waiting:
        reason: ImagePullBackOff
        message: "Back-off pulling image {{ .image }}"
"""

_ENDED_CONTAINER: Final = """
    ready: false
    started: false
    restartCount: 0
    state:
      terminated:
        exitCode: %d
        reason: %s
        message: {{ $message | Quote }}
        startedAt: {{ $now | Quote }}
        finishedAt: {{ $now | Quote }}"""


def _status(container: str, *, is_ready: bool = False, phase: str = "Running") -> str:
    """Return the template of a status in which every container is in this state."""
    conditions = "".join(
        f"""
- type: {kind}
  status: "{fact}"
  lastTransitionTime: {{{{ $now | Quote }}}}"""
        for kind, fact in (
            ("Initialized", True),
            ("ContainersReady", is_ready),
            ("Ready", is_ready),
        )
    )
    told = f'( index ( or .metadata.annotations dict ) "{MESSAGE_ANNOTATION}" )'
    words = "( or .spec.hostNetwork false ) .metadata.uid .metadata.name .metadata.namespace"
    return f"""
{{{{ $now := Now }}}}
{{{{ $message := or {told} "the configuration is missing" }}}}
phase: {phase}
startTime: {{{{ $now | Quote }}}}
hostIP: {{{{ NodeIPWith .spec.nodeName | Quote }}}}
podIP: {{{{ or .status.podIP ( PodIPWith .spec.nodeName {words} ) | Quote }}}}
conditions:{conditions}
containerStatuses:
{{{{ range .spec.containers }}}}
  - name: {{{{ .name | Quote }}}}
    image: {{{{ .image | Quote }}}}
    imageID: ""{container}
{{{{ end }}}}
"""


def _ended(phase: str, *, code: int) -> str:
    return _status(_ENDED_CONTAINER % (code, "Error" if code else "Completed"), phase=phase)
