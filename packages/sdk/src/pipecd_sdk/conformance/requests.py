# SPDX-License-Identifier: Apache-2.0
"""Requests from case files: the `$names` are replaced, the rest is the message's JSON form."""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from pipecd_sdk.conformance.case import CaseFileError
from pipecd_sdk.conformance.profile import Profile, StageProfile
from pipecd_sdk.testing.process import example_deployment, example_source
from pipecd_wire.model.deployment_pb2 import StageStatus

POSITIONS: Final = (2, 3, 5, 7, 11, 13, 17, 19)
"""Where the plugin's stages stand in the pipeline: others have stages before and between."""

GARBAGE: Final = base64.b64encode(b"\xff{{ not JSON").decode()


def make_known_names(
    profile: Profile, directory: Path, stage: StageProfile | None, defined: Sequence[str]
) -> dict[str, Any]:
    """What the `$names` of a case mean for this plugin and this stage."""
    source = MessageToDict(example_source(directory, {profile.name: profile.application}))
    planned = list(profile.stages)[: len(POSITIONS)]
    deployment = MessageToDict(example_deployment())
    if profile.targets:
        deployment["deployTargetsByPlugin"] = {profile.name: {"deployTargets": profile.targets}}
    known: dict[str, Any] = {
        "deployment": deployment,
        "source": source,
        "running": {**source, "commitHash": "f" * 40},
        "targets": profile.targets,
        "defined": list(defined),
        "indexes": list(POSITIONS[: len(planned)]),
        "planned": [
            _make_planned(each, index) for each, index in zip(planned, POSITIONS, strict=False)
        ],
        "garbage": GARBAGE,
        "failed": [StageStatus.STAGE_FAILURE, StageStatus.STAGE_CANCELLED],
        "no_such_stage": _stage("NO_SUCH_STAGE", 2),
        "target": profile.targets[0] if profile.targets else "",
        "no_such_resource": {
            "id": "no-such-resource",
            "name": "no-such-resource",
            "createdAt": 1_704_196_800,
            "updatedAt": 1_704_196_800,
        },
    }
    if stage is not None:
        known["stage"] = _stage(stage.name, 2)
        known["options"] = _options(stage.options)
        known["result_numbers"] = [StageStatus.Value(f"STAGE_{result}") for result in stage.results]
        if stage.long is not None:
            known["long"] = _options(stage.long)
        if stage.wrong is not None:
            known["wrong"] = _options(stage.wrong)
    return known


def build(request_type: Any, given: Any, known: Mapping[str, Any]) -> Any:
    """The message of a case's request."""
    try:
        return ParseDict(_fill(given or {}, known), request_type())
    except ParseError as error:
        raise CaseFileError(f"the request does not fit its message: {error}") from None


def _fill(given: Any, known: Mapping[str, Any]) -> Any:
    match given:
        case str() if given.startswith("$"):
            if given[1:] not in known:
                raise CaseFileError(f"{given} is not known here")
            return known[given[1:]]
        case dict():
            return {key: _fill(value, known) for key, value in given.items()}
        case list():
            return [_fill(value, known) for value in given]
    return given


def _options(options: Mapping[str, Any]) -> str:
    return base64.b64encode(json.dumps(options).encode()).decode()


def _make_planned(stage: StageProfile, index: int) -> dict[str, Any]:
    return {
        "name": stage.name,
        "index": index,
        "timeout": "6h0m0s",
        "config": _options(stage.options),
    }


def _stage(name: str, index: int) -> dict[str, Any]:
    times = {"createdAt": 1_704_196_800, "updatedAt": 1_704_196_800}
    return {"id": f"stage-{index}", "name": name, "index": index, **times}
