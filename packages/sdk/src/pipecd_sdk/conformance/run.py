# SPDX-License-Identifier: Apache-2.0
"""Runs all cases with one plugin and reports which promises it keeps."""

import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from pipecd_runtime.orphans import Search, end_orphans
from pipecd_sdk.conformance.case import Case, CaseStep
from pipecd_sdk.conformance.profile import Profile, StageProfile
from pipecd_sdk.conformance.requests import make_known_names
from pipecd_sdk.conformance.session import BrokenPromiseError, ConformanceSession
from pipecd_sdk.testing.piped import FakePiped
from pipecd_wire.headers import SCRIPTS_VARIABLE


class CaseOutcome(Enum):
    """How a case ended."""

    HOLDS = "holds"
    BROKEN = "BROKEN"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseVerdict:
    """What came of one case."""

    case: Case
    stage: str = ""
    outcome: CaseOutcome
    reason: str = ""
    """What was done instead, or why the case was not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the plugin turned out to be."""

    defined: tuple[str, ...]
    has: frozenset[str]


async def judge_plugin(
    command: Sequence[str],
    profile: Profile,
    cases: Sequence[Case],
    *,
    invite: bool = True,
    patience_factor: float = 1.0,
    tools: Path | None = None,
) -> AsyncIterator[CaseVerdict]:
    """Runs the cases; yields one verdict for each, or for each stage if the case is per stage.

    `invite` is how our piped starts a plugin; without it it is started as a Go agent does.
    `patience_factor` stretches the limits of the cases, for a plugin that is slow by nature.
    `tools` is a folder of programs as piped has one: `<name>-<version>` counts as installed.
    """
    with tempfile.TemporaryDirectory(prefix="pipecd-plugin-") as folder:
        there = profile.fill_folder(Path(folder))
        directory = Path(folder) / "application"
        directory.mkdir()
        there.write_files(directory)
        async with FakePiped(managed=invite, ping_interval_seconds=0.5) as piped:
            piped.tools = tools or Path(folder) / "tools"
            piped.tools.mkdir(parents=True, exist_ok=True)
            scripts = {SCRIPTS_VARIABLE: str(Path(folder) / "scripts")}
            session = ConformanceSession(command, there, piped, scripts, patience_factor)
            try:
                async for verdict in _judge_all(session, there, directory, cases):
                    yield verdict
            finally:
                await session.close()
                # Scripts outlive their plugin on purpose, and nobody follows these any more.
                await end_orphans(Search(folder=Path(folder)))


async def _judge_all(
    session: ConformanceSession, profile: Profile, directory: Path, cases: Sequence[Case]
) -> AsyncIterator[CaseVerdict]:
    try:
        offer = await _look(session, profile, directory)
    except BrokenPromiseError as broken:
        first, *others = cases
        yield CaseVerdict(case=first, outcome=CaseOutcome.BROKEN, reason=str(broken))
        for case in others:
            yield CaseVerdict(case=case, outcome=CaseOutcome.NOT_ASKED, reason="it does not start")
        return
    if not profile.stages:
        profile = msgspec.structs.replace(
            profile, stages=tuple(StageProfile(name=name) for name in offer.defined)
        )
        offer = await _add_plans(session, profile, directory, offer)
    else:
        offer = replace(offer, has=offer.has | {"plans"})
    for number, case in enumerate(cases):
        stages: Sequence[StageProfile | None] = profile.stages if case.each_stage else (None,)
        for stage in stages:
            tag = f"{number}-{stage.name if stage else ''}"
            yield await _judge(session, case, profile, directory, offer, stage, tag)


async def _judge(
    session: ConformanceSession,
    case: Case,
    profile: Profile,
    directory: Path,
    offer: Offer,
    stage: StageProfile | None,
    tag: str,
) -> CaseVerdict:
    name = stage.name if stage else ""
    if lacking := _find_lack(case, profile, offer, stage):
        return CaseVerdict(case=case, stage=name, outcome=CaseOutcome.NOT_ASKED, reason=lacking)
    known = make_known_names(profile, directory, stage, offer.defined)
    known["deployment"]["id"] = f"deployment-{tag}"
    for each in ("stage", "no_such_stage"):
        if each in known:
            known[each]["id"] = f"stage-{tag}"
    try:
        await session.walk(case.steps, known)
    except BrokenPromiseError as broken:
        return CaseVerdict(case=case, stage=name, outcome=CaseOutcome.BROKEN, reason=str(broken))
    return CaseVerdict(case=case, stage=name, outcome=CaseOutcome.HOLDS)


def _find_lack(case: Case, profile: Profile, offer: Offer, stage: StageProfile | None) -> str:
    for need in case.needs:
        match need:
            case "long" if stage is None or stage.long is None:
                return "the profile has no options for a long run (`long`)"
            case "wrong" if stage is None or stage.wrong is None:
                return "the profile has no wrong options (`wrong`)"
            case "ends" if stage is None or stage.endless:
                return "the stage never ends by itself"
            case "ends" if stage is not None and not stage.ends:
                return "the profile has no options with which it ends by itself (`with`)"
            case "targets" if not profile.deploy_targets:
                return "the profile has no deploy targets"
            case "long" | "wrong" | "ends" | "targets":
                continue
            case _ if need not in offer.has:
                return _WITHOUT[need]
    return ""


_WITHOUT = {
    "management": "it does not take part in plugin management",
    "platform": "it offers stages only",
    "stages only": "it deploys to a platform",
    "live state": "it has no live state",
    "plan preview": "it has no plan preview",
    "details": "it has no details of resources",
    "plans": "its stages need options, and the profile has none (`stages[].with`)",
}


async def _look(session: ConformanceSession, profile: Profile, directory: Path) -> Offer:
    """Starts the plugin for the first time; returns which stages and interfaces it has."""
    await session.start()
    known = make_known_names(profile, directory, None, ())
    stages = CaseStep(do="call", rpc="FetchDefinedStages", keep="stages")
    await session.walk([stages], known)
    has = set()
    if session.piped.ready:
        has.add("management")
    if await _answers(session, known, "DetermineStrategy", _PLANNED):
        has.add("stages only" if known["answer"].unsupported else "platform")
    for need, rpc, request in (
        ("live state", "GetLivestate", {"deploySource": "$source", "deployTargets": "$targets"}),
        ("plan preview", "GetPlanPreview", _PREVIEW),
        ("details", "OpenResource", {"resource": "$no_such_resource"}),
    ):
        if not await _is_unknown(session, known, rpc, request):
            has.add(need)
    return Offer(defined=tuple(known["stages"].stages), has=frozenset(has))


async def _add_plans(
    session: ConformanceSession, profile: Profile, directory: Path, offer: Offer
) -> Offer:
    """Returns the offer with `plans` if the plugin can plan its stages.

    Without a profile, only a plugin whose stages need no options can plan them.
    """
    known = make_known_names(profile, directory, None, offer.defined)
    request = {"rollback": True, "stages": "$planned"}
    if not await _answers(session, known, "BuildPipelineSyncStages", request):
        return offer
    return replace(offer, has=offer.has | {"plans"})


_PLANNED = {
    "input": {
        "deployment": "$deployment",
        "runningDeploymentSource": "$running",
        "targetDeploymentSource": "$source",
    }
}
_PREVIEW = {"targetDeploymentSource": "$source", "deployTargets": "$targets"}


async def _answers(
    session: ConformanceSession, known: dict[str, Any], rpc: str, request: Any
) -> bool:
    try:
        await session.walk([CaseStep(do="call", rpc=rpc, request=request, keep="answer")], known)
    except BrokenPromiseError:
        return False
    return True


async def _is_unknown(
    session: ConformanceSession, known: dict[str, Any], rpc: str, request: Any
) -> bool:
    step = CaseStep(do="call", rpc=rpc, request=request, status=("UNIMPLEMENTED",))
    try:
        await session.walk([step], known)
    except BrokenPromiseError:
        return False
    return True
