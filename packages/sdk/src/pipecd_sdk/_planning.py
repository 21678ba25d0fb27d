# SPDX-License-Identifier: Apache-2.0
"""The stage list of a plugin: options decoded and checked, the rules of indexes kept.

Pure: piped's requests come through `_glue.plan`, a plugin's own tests through `testing`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from pipecd_model.config.path import format_path
from pipecd_model.secrets.placeholder import problems, texts
from pipecd_sdk.config import Fault, OptionFaultsError, read
from pipecd_sdk.plugin import PlannedStage, RequestedStage, StagePlugin
from pipecd_sdk.secrets import UNOPENED, UNOPENED_HINT


class StageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of a pipeline as piped asks for it."""

    name: str
    index: int
    desc: str = ""
    config: bytes = b""
    """JSON of its `with`."""


class BadPlanError(Exception):
    """A plugin planned stages that break the rules of indexes: a bug of the plugin."""


def plan_pipeline(
    plugin: StagePlugin,
    requests: Sequence[StageRequest],
    *,
    rollback: bool,
    opens_secrets: bool = True,
) -> list[PlannedStage]:
    """Plan the stages of a pipeline; raises OptionFaultsError with the faults of all of them.

    `opens_secrets`: does the agent? If not, a stage that names one would run without it.
    """
    requested, faults = _decode(plugin, requests)
    if not opens_secrets:
        faults += _find_unopened_secrets(requests)
    if faults:
        raise OptionFaultsError(faults)
    planned = list(plugin.plan(requested, rollback=rollback))
    _check_indexes(plugin, planned, {request.index for request in requests})
    return planned


def faults_of(plugin: StagePlugin, requests: Iterable[StageRequest]) -> list[Fault]:
    """Everything that is wrong in the options of some stages."""
    return _decode(plugin, requests)[1]


def section_faults(plugin: StagePlugin, text: bytes) -> list[Fault]:
    """Everything that is wrong in the plugin's part of an application file, given as JSON."""
    try:
        read(plugin.application_config, text, path=())
    except OptionFaultsError as error:
        return list(error.faults)
    return []


def target_faults(plugin: StagePlugin, names: Sequence[str]) -> list[Fault]:
    """What is wrong with the deploy targets of an application that are the plugin's."""
    if not plugin.takes_one_target or len(names) <= 1:
        return []
    return [
        Fault(
            path="deployTargets",
            message=f"an application has one deploy target here, and this one has {len(names)}: "
            f"{', '.join(names)}",
            hint="make an application for each",
        )
    ]


def _find_unopened_secrets(requests: Iterable[StageRequest]) -> list[Fault]:
    return [
        Fault(path=format_path(path), message=UNOPENED, hint=UNOPENED_HINT)
        for request in requests
        for path, text in texts(
            json.loads(request.config or b"{}"), ("stages", request.index, "with")
        )
        if problems(text, known=())
    ]


def _decode(
    plugin: StagePlugin, requests: Iterable[StageRequest]
) -> tuple[list[RequestedStage], list[Fault]]:
    requested: list[RequestedStage] = []
    faults: list[Fault] = []
    for request in requests:
        try:
            requested.append(_decode_stage(plugin, request))
        except OptionFaultsError as error:
            faults += error.faults
            continue
        place = format_path(("stages", request.index, "with"))
        faults += [
            Fault(path=f"{place}.{each.path}", message=each.message, hint=each.hint)
            for each in plugin.find_faults(requested[-1])
        ]
    return requested, faults


def _decode_stage(plugin: StagePlugin, request: StageRequest) -> RequestedStage:
    place = format_path(("stages", request.index))
    definition = plugin.stages.get(request.name)
    if definition is None:
        raise OptionFaultsError(
            [
                Fault(
                    path=place,
                    message=f"this plugin has no stage {request.name!r}",
                    hint=f"it has {', '.join(plugin.stages)}",
                )
            ]
        )
    if definition.rollback:
        raise OptionFaultsError(
            [
                Fault(
                    path=place,
                    message=f"{request.name} cannot be written in a pipeline",
                    hint="it is added by itself, as the rollback of another stage",
                )
            ]
        )
    config = None
    if definition.config is not None:
        path = ("stages", request.index, "with")
        config, _ = read(definition.config, request.config, path=path)
    return RequestedStage(
        name=request.name,
        index=request.index,
        desc=request.desc or definition.desc,
        config=config,
    )


def _check_indexes(plugin: StagePlugin, planned: list[PlannedStage], asked: set[int]) -> None:
    for each in planned:
        if each.name not in plugin.stages:
            raise BadPlanError(f"planned the stage {each.name!r}, which it does not offer")
        if each.index not in asked:
            raise BadPlanError(f"planned {each.name} at {each.index}, which was not asked for")
    taken = Counter((each.rollback, each.index) for each in planned)
    for (_, index), count in taken.items():
        if count > 1:
            raise BadPlanError(f"planned {count} stages at {index}")
