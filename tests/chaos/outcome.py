# SPDX-License-Identifier: Apache-2.0
"""Gathers from outside how a round has ended: the API, the traces of scripts, /proc, folders."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing

from chaos import audited, controlled, foreign
from chaos.applications import ALL_NAMES, APPLICATIONS, Effect, Stage
from chaos.check import FAILURE, STOPPED, SUCCESS, Ended, is_interrupted, log_violation
from chaos.observe import Observer
from chaos.processes import Found, processes_of
from chaos.promises import Violation
from chaos.site import Site
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import CallError, stream

LOG_LIMIT = 30.0
LEFT_LIMIT = 30.0
"""Seconds for what is left of a round to go away."""
MOST_TREES = 2 * (len(ALL_NAMES) + len(controlled.APPLICATIONS))
"""Of the one repository: more than are ever in use at once are left over."""


async def violations(
    site: Site,
    observer: Observer,
    effects: Sequence[Effect],
    lost_shims: int,
    hidden: int = 0,
) -> AsyncIterator[Violation]:
    """All promises that this round has broken, but those of stories.

    `hidden`: how many interrupted attempts of stages nobody can see any more.
    """
    deployments = await observer.listed()
    for violation in triggered((each.application_name for each in deployments), site.names):
        yield violation
    for step_back in observer.backwards:
        yield Violation(promise="forward", sentence=step_back)
    interrupted = hidden
    for each in deployments:
        for violation in _ended(each, effects, lost_shims).violations():
            yield violation
        interrupted += sum(is_interrupted(stage) for stage in each.stages)
        async for violation in _logs(site, each):
            yield violation
    of_stories = [
        each
        for each in observer.latest.values()
        if each.application_name in (controlled.APPLICATIONS)
    ]
    interrupted += sum(is_interrupted(stage) for each in of_stories for stage in each.stages)
    if interrupted > lost_shims:
        sentence = f"{interrupted} stages were interrupted, but {lost_shims} shims have died"
        yield Violation(promise="outcome", sentence=sentence)
    for violation in alive(site):
        yield violation
    for violation in await left_over(site):
        yield violation
    # Before the records: all of it is in them.
    logged = [head for each in site.servers for head in audited.read_heads(each.log)]
    records, head = await audited.read_chain(site.projects)
    for violation in audited.find_violations(records, head, logged, observer.answered):
        yield violation
    site.reported |= {each.pid for each in processes_of(site.root)}


def subjects(deployment: Deployment) -> set[str]:
    """What stands for a deployment in the events of its scripts."""
    if deployment.application_name in foreign.APPLICATIONS:
        return {foreign.subject(deployment.trigger.commit.message)}
    return {deployment.id}


def _ended(
    deployment: Deployment, effects: Iterable[Effect], lost_shims: int
) -> Ended | foreign.ForeignEnded:
    name = deployment.application_name
    wanted = subjects(deployment)
    if name in foreign.APPLICATIONS:
        events = [
            (each.event, each.index)
            for each in effects
            if each.deployment in wanted and each.application == name
        ]
        return foreign.ForeignEnded(deployment=deployment, events=events)
    mine = [each for each in effects if each.deployment in wanted]
    return Ended(deployment=deployment, effects=mine, lost_shims=lost_shims)


def triggered(names: Iterable[str], wanted: Iterable[str]) -> Iterator[Violation]:
    """Is there one deployment of each application?"""
    counts = Counter(names)
    if counts != Counter(dict.fromkeys(wanted, 1)):
        yield Violation(promise="triggered", sentence=f"deployments of the commit: {dict(counts)}")


def alive(site: Site) -> Iterator[Violation]:
    """Has nobody ended without being killed?"""
    for kept in site.kept:
        while kept.unexpected:
            yield Violation(promise="alive", sentence=kept.unexpected.pop())
    if site.database is not None and not site.database.pid:
        yield Violation(promise="alive", sentence="the database has ended by itself")


async def _logs(site: Site, deployment: Deployment) -> AsyncIterator[Violation]:
    name = deployment.application_name
    if name in foreign.APPLICATIONS:
        async for violation in _foreign_logs(site, deployment):
            yield violation
        return
    async for violation in script_log_violations(site, deployment, APPLICATIONS[name]):
        yield violation


async def script_log_violations(
    site: Site, deployment: Deployment, plan: Sequence[Stage]
) -> AsyncIterator[Violation]:
    """Yields what is wrong with the logs of a deployment's scripts."""
    for stage in deployment.stages:
        if stage.rollback or stage.name != "SCRIPT_RUN" or stage.index >= len(plan):
            continue
        if stage.status not in {SUCCESS, FAILURE, STOPPED}:
            continue
        where = f"{deployment.application_name} {deployment.id} stage {stage.index}: the log"
        lines, is_closed = await stage_log(site, deployment, stage)
        if not is_closed:
            yield Violation(promise="logs", sentence=f"{where} is not closed")
        expected = plan[stage.index].lines
        if plan[stage.index].rerun and sum("interrupted" in line for line in lines):
            last = max(at for at, line in enumerate(lines) if line == "line 1")
            lines = lines[last:]
        is_whole = not is_interrupted(stage) and stage.status != STOPPED
        if wrong := log_violation(lines, expected, is_whole=is_whole):
            yield Violation(promise="logs", sentence=f"{where} {wrong}")


async def _foreign_logs(site: Site, deployment: Deployment) -> AsyncIterator[Violation]:
    """Such a plugin closes no log of a stage that it was not let to end."""
    plan = foreign.APPLICATIONS[deployment.application_name]
    for stage in deployment.stages:
        if stage.rollback or stage.status not in {SUCCESS, FAILURE}:
            continue
        lines, is_closed = await stage_log(site, deployment, stage)
        where = f"{deployment.application_name} {deployment.id} stage {stage.index}: the log"
        if not is_closed:
            yield Violation(promise="logs", sentence=f"{where} is not closed")
        if wrong := foreign.log_violation(lines, plan[stage.index].lines, is_whole=True):
            yield Violation(promise="logs", sentence=f"{where} {wrong}")


async def stage_log(
    site: Site, deployment: Deployment, stage: PipelineStage, limit: float = LOG_LIMIT
) -> tuple[list[str], bool]:
    """The lines of a stage's log, and whether it is closed."""
    request = api_pb2.FollowStageLogRequest(
        deployment_id=deployment.id, stage_id=stage.id, retried_count=stage.retried_count
    )
    lines: list[str] = []
    try:
        async with asyncio.timeout(limit):
            while True:
                try:
                    answers = stream(site.deployments.FollowStageLog, request)
                    async with aclosing(answers):
                        async for answer in answers:
                            lines += [block.log for block in answer.blocks]
                            if answer.blocks:
                                request.from_index = answer.blocks[-1].index + 1
                            if answer.completed:
                                return lines, True
                except CallError:
                    await asyncio.sleep(0.2)
    except TimeoutError:
        return lines, False


async def left_over(site: Site, limit: float = LEFT_LIMIT) -> list[Violation]:
    """What is still there after a while."""
    found: list[Violation] = []
    try:
        async with asyncio.timeout(limit):
            while True:
                found = [*_processes(site), *_records(site), *_trees(site)]
                if not found:
                    return found
                await asyncio.sleep(0.2)
    except TimeoutError:
        return found


def _processes(site: Site) -> Iterator[Violation]:
    found = processes_of(site.root)
    pipeds = {each.kept.pid for each in site.agents}
    keepers = {each.pid for each in found if each.plugin == "scriptrun" and each.parent in pipeds}
    for each in _unknown(site, found, keepers):
        if each.pid not in site.reported:
            sentence = f"pid {each.pid} below {each.parent}: {each.command[:200]}"
            yield Violation(promise="processes", sentence=sentence)


def _unknown(site: Site, found: list[Found], plugins: set[int]) -> Iterator[Found]:
    # The plugin keeps one shim ready for the next script, and the template that it was forked from.
    templates = {each.pid for each in found if each.is_shim and each.parent in plugins}
    programs = {each.pid for each in site.kept}
    pipeds = {each.kept.pid for each in site.agents}
    for each in found:
        is_program = each.pid in programs
        is_plugin = each.plugin and each.parent in pipeds
        is_idle = each.is_shim and each.parent in plugins | templates
        is_git = each.parent in pipeds and each.command.startswith("git ")
        if not (is_program or is_plugin or is_idle or is_git) or each.is_script:
            yield each


def _records(site: Site) -> Iterator[Violation]:
    found = (folder.name for agent in site.agents for folder in agent.scripts.glob("*"))
    if folders := sorted(found):
        sentence = f"{len(folders)} folders are left over, such as {folders[0]}"
        yield Violation(promise="records", sentence=sentence)


def _trees(site: Site) -> Iterator[Violation]:
    for agent in site.agents:
        folders = list(agent.trees.glob("*/*"))
        if len(folders) > MOST_TREES:
            sentence = f"there are {len(folders)} trees, such as {folders[0]}"
            yield Violation(promise="folders", sentence=sentence)
