# SPDX-License-Identifier: Apache-2.0
"""Compares what is seen with what must be the case. Pure.

A violation is wrong whenever it is seen. What is not settled is still to come: wrong only if it
never does, and every deployment that waits is settled only if it says why, and that is true.
"""

from collections import Counter
from collections.abc import Iterator

from pipecd_model.deployment import find_stage_to_decide
from pipecd_model.holds import WAITING
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment
from sequences.reference import (
    OPEN,
    Kind,
    KnownApplication,
    Look,
    Reference,
    has_begun,
    is_open,
)

STEPS = ("one", "two")


def find_violations(known: Reference, look: Look) -> list[str]:
    """Returns what must never be, as sentences; `known` then knows of what was seen."""
    found: list[str] = []
    for application in known.applications.values():
        deployments = look.deployments[application.name]
        found += _find_lost(application, deployments)
        found += _find_twice(known, application, deployments)
        found += _find_barred(known, application, deployments)
        for each in deployments:
            found += _judge_end(known, application, each)
        running = [each.id for each in deployments if is_open(each) and has_begun(each)]
        if len(running) > 1:
            found.append(f"{application.name}: {running} run at the same time")
    found += _find_effects(known, look)
    return found


def _find_lost(application: KnownApplication, deployments: list[pb.Deployment]) -> Iterator[str]:
    seen = {each.id: each for each in deployments}
    for lost in application.statuses.keys() - seen.keys():
        yield f"{application.name}: the deployment {lost} is lost"
    for each in deployments:
        before = application.statuses.get(each.id, pb.DEPLOYMENT_PENDING)
        was_open = before in OPEN
        if each.status != before and (each.status < before or not was_open):
            yield (
                f"{application.name}: the status of {each.id} went from"
                f" {pb.DeploymentStatus.Name(before)} to {pb.DeploymentStatus.Name(each.status)}"
            )
        application.statuses[each.id] = each.status


def _find_twice(
    known: Reference, application: KnownApplication, deployments: list[pb.Deployment]
) -> Iterator[str]:
    """A version is deployed once by itself.

    Once more for each time that a person has brought in another one: a pin that is released, or an
    older commit whose hold is. Then the newest version is not the last that was triggered.
    """
    name = application.name
    alone = [each for each in deployments if not known.is_asked(each.id)]
    for version, count in Counter(known.version_of(each, name) for each in alone).items():
        if count > 1 + application.pin_releases + len(known.released & application.asked_for):
            yield f"{name}: version {version} was deployed {count} times by itself"
    begun = [each for each in alone if has_begun(each) and each.id not in application.begun_ids]
    for version in sorted(known.version_of(each, name) for each in begun):
        if application.begun and version < max(application.begun):
            yield f"{name}: version {version} began after version {max(application.begun)}"
        application.begun.append(version)


def _find_barred(
    known: Reference, application: KnownApplication, deployments: list[pb.Deployment]
) -> Iterator[str]:
    for each in deployments:
        if not has_begun(each) or each.id in application.begun_ids:
            continue
        application.begun_ids.add(each.id)
        for (name, rule), before in known.bars.items():
            is_bound = name == application.name and each.id not in before
            if is_bound and not known.passes(each.id, rule):
                yield f"{name}: the deployment {each.id} began in spite of the {rule}"


def _judge_end(
    known: Reference, application: KnownApplication, deployment: pb.Deployment
) -> Iterator[str]:
    name = application.name
    number = known.version_of(deployment, name)
    version = application.versions[number]
    told = f"{name}: {deployment.id} of version {number} ({version.kind})"
    match deployment.status:
        case pb.DEPLOYMENT_SUCCESS:
            never = version.kind is Kind.KEPT_OPEN and not version.is_let_go
            if version.kind is Kind.FAILING or never:
                yield f"{told} succeeded"
        case pb.DEPLOYMENT_FAILURE:
            chosen = deployment.id in known.given_up
            if version.kind is not Kind.FAILING and not chosen:
                yield f"{told} failed: {deployment.status_reason}"
        case pb.DEPLOYMENT_CANCELLED if deployment.id not in known.cancelled:
            if not _is_superseded(known, application, deployment):
                yield f"{told} was cancelled, and nobody asked: {deployment.status_reason}"
        case _:
            pass


def _is_superseded(
    known: Reference, application: KnownApplication, deployment: pb.Deployment
) -> bool:
    _, found, rest = deployment.status_reason.partition("superseded by the deployment ")
    newer = rest.partition(" ")[0]
    if not found or newer not in application.statuses:
        return False
    return newer in known.roll_backs or (
        application.mode == "supersede" and deployment.id not in known.roll_backs
    )


def _find_effects(known: Reference, look: Look) -> Iterator[str]:
    for line, count in Counter(look.effects).items():
        deployment_id, step = line.split()
        if step in STEPS and count > 1 + known.retries[deployment_id]:
            yield f"the step {step} of {deployment_id} ran {count} times"
    if known.effects_at_stop is None:
        return
    for line in look.effects:
        deployment_id, step = line.split()
        is_new = step in STEPS and line not in known.effects_at_stop
        if is_new and not known.passes(deployment_id, "stop"):
            yield f"the step {step} of {deployment_id} began in spite of the emergency stop"


def find_unsettled(known: Reference, look: Look) -> list[str]:
    """Returns what is still to happen, or to be said."""
    found: list[str] = []
    for application in known.applications.values():
        found += _find_untriggered(known, application, look)
        for each in look.deployments[application.name]:
            if is_open(each):
                reason = _find_unexplained(known, application, each, look)
                found += [f"{application.name}: {each.id} {reason}"] if reason else []
        found += _find_unheld(known, application, look)
    return found


def _find_untriggered(known: Reference, application: KnownApplication, look: Look) -> Iterator[str]:
    """Yields that the newest version has no deployment and does not wait visibly."""
    name = application.name
    deployments = look.deployments[name]
    alone = [each for each in deployments if is_open(each) and not known.is_asked(each.id)]
    if application.mode == "reject" and len(alone) > 1:
        # That the older one is completed may be reported after the newer one was made.
        yield f"{name}: two deployments are open, although newer ones are to be rejected"
    for wanted in application.asked_for - {each.id for each in deployments}:
        yield f"{name}: the deployment {wanted} that was asked for is not there"
    if any(
        known.version_of(each, name) == application.head
        and each.id not in application.before_release
        for each in deployments
    ):
        return
    control = look.controls.get(name)
    is_held = control is not None and control.HasField("hold")
    is_rejected = application.mode == "reject" and any(map(is_open, deployments))
    if not (application.pin or is_held or is_rejected):
        yield f"{name}: version {application.head} has no deployment"
    elif not look.sync_reasons[name].startswith(WAITING):
        yield f"{name}: version {application.head} waits, and the sync state does not say so"


def _find_unheld(known: Reference, application: KnownApplication, look: Look) -> Iterator[str]:
    """Yields that the only deployment of the newest version failed, and the commit is not held."""
    name = application.name
    newest = [
        each for each in look.deployments[name] if known.version_of(each, name) == application.head
    ]
    if len(look.deployments[name]) > 1 and len(newest) == 1 and not application.pin_releases:
        [only] = newest
        control = look.controls.get(name)
        held = control.hold.deployment_id if control is not None else ""
        if only.status == pb.DEPLOYMENT_FAILURE and not application.pin and held != only.id:
            yield f"{name}: {only.id} failed, and its commit is not held"


def _find_unexplained(
    known: Reference, application: KnownApplication, deployment: pb.Deployment, look: Look
) -> str:
    """Returns what is missing for an open deployment to stay as it is; empty when nothing is."""
    if deployment.id in known.cancelled:
        return "was to be cancelled"
    newer = _find_replacing(known, application, deployment, look)
    if has_begun(deployment):
        return _find_unexplained_running(known, application, deployment, look, newer)
    if newer:
        return f"was to be superseded by {newer}"
    queued = look.queue.get(deployment.id)
    if queued is None or not queued.sentence:
        return "waits, and nobody says why"
    binding = known.list_binding(application, deployment.id, look.at)
    other = look.find(queued.other_deployment_id)
    match queued.cause:
        case QueuedDeployment.RULE:
            is_true = any(told in queued.sentence for told in binding.values())
        case QueuedDeployment.OTHER_DEPLOYMENT:
            mine = look.deployments[application.name]
            is_true = other is not None and is_open(other) and other in mine
        case QueuedDeployment.LOCK:
            is_true = other is not None and is_open(other) and queued.lock in application.locks
        case _:
            is_true = False
    return "" if is_true else f"waits, and this is not why: {queued.sentence}"


def _find_replacing(
    known: Reference, application: KnownApplication, deployment: pb.Deployment, look: Look
) -> str:
    """Returns the newer deployment that takes the place of one; empty when none does."""
    name = application.name
    roll_back_waits = any(
        each.id in known.roll_backs and is_open(each) and not has_begun(each)
        for each in look.deployments[name]
    )
    for each in look.deployments[name]:
        if each.id == deployment.id or not is_open(each) or has_begun(each):
            continue
        if each.id in known.roll_backs:
            is_spared = deployment.id in known.roll_backs and has_begun(deployment)
            if deployment.id in known.roll_backs[each.id] and not is_spared:
                return each.id
            continue
        if application.mode != "supersede" or deployment.id in known.roll_backs:
            continue
        if known.is_asked(each.id) or known.is_asked(deployment.id):
            continue
        mine, its = known.version_of(deployment, name), known.version_of(each, name)
        may_begin = not known.list_binding(application, each.id, look.at)
        if its > mine and (not has_begun(deployment) or (may_begin and not roll_back_waits)):
            return each.id
    return ""


def _find_unexplained_running(
    known: Reference,
    application: KnownApplication,
    deployment: pb.Deployment,
    look: Look,
    newer: str,
) -> str:
    version = application.versions[known.version_of(deployment, application.name)]
    queued = look.queue.get(deployment.id)
    if queued is not None:
        is_paused = known.stop and not known.passes(deployment.id, "stop")
        if is_paused and known.stop in queued.sentence and not newer:
            return ""
        return f"is said to wait: {queued.sentence}"
    running = [each for each in deployment.stages if each.status == pb.STAGE_RUNNING]
    if [each.name for each in running] == ["SCRIPT_RUN"]:
        if f"{deployment.id} one" not in look.effects or version.is_let_go:
            return "runs a script"
        return "" if version.kind is Kind.GATED else "runs a script"
    if newer:
        return f"was to be superseded by {newer}"
    if [each.name for each in running] == ["WAIT_APPROVAL"]:
        return "was approved" if deployment.id in known.approved else ""
    failed = find_stage_to_decide(deployment)
    if failed is not None and version.kind is Kind.KEPT_OPEN:
        if failed.retried_count < known.retries[deployment.id]:
            return "was to be retried"
        return "was to be rolled back" if deployment.id in known.given_up else ""
    return f"is {pb.DeploymentStatus.Name(deployment.status)}"
