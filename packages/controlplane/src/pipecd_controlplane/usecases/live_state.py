# SPDX-License-Identifier: Apache-2.0
"""Live state: what really runs. A snapshot, and for Kubernetes of v0 the changes since.

A late snapshot does not replace a newer one, and health is computed after each change.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pipecd_controlplane.store.blobs.blob_store import BlobsRefusedError, BlobsUnavailableError
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.records import ReportedMessage
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import limits
from pipecd_controlplane.usecases.ownership import Agent, own_application
from pipecd_model.errors import ConfigError, LostDataError, NotFoundError
from pipecd_wire.model import application_live_state_pb2 as pb

Snapshot = pb.ApplicationLiveStateSnapshot

LATE_SECONDS: Final = 120
"""An older snapshot that arrives after this time is not just late: a clock was set back."""


async def report(stores: Stores, agent: Agent, reported: Snapshot, now: Now) -> None:
    """Store a snapshot of an application of this piped."""
    application = await own_application(stores.applications, agent, reported.application_id)
    if (reported.project_id, reported.piped_id) != (application.project_id, application.piped_id):
        raise ConfigError(
            "invalid request: snapshot: project and piped are not those of its application"
        )
    limits.size("live state", reported, limits.LIVE_STATE_BYTES)
    snapshot = Snapshot()
    snapshot.CopyFrom(reported)
    judge_health(snapshot)

    def edit(known: ReportedMessage[Snapshot] | None) -> Snapshot | None:
        if (
            known is not None
            and not known.is_sealed  # and so not changed for much longer than LATE_SECONDS
            and _version(snapshot.version) < _version(known.message.version)
            and now() - known.updated_at < LATE_SECONDS
        ):
            return None
        return snapshot

    async def work(transaction: Transaction) -> None:
        await stores.live_states.change_in(
            transaction, agent.project_id, reported.application_id, edit
        )

    await stores.database.write(work)


async def patch(
    stores: Stores, agent: Agent, events: Iterable[pb.KubernetesResourceStateEvent]
) -> list[str]:
    """Applies changes, in order for each application; returns the ids of the refused ones.

    Those of a live state in the blob store are refused where it cannot be read. A store that does
    not answer is asked once: each wait is long, and the other applications' changes wait with it.
    """
    by_application: dict[str, list[pb.KubernetesResourceStateEvent]] = {}
    for event in events:
        by_application.setdefault(event.application_id, []).append(event)
    failed: list[str] = []
    answers = True
    own: dict[str, list[pb.KubernetesResourceStateEvent]] = {}
    for application_id, changes in by_application.items():
        application = await stores.applications.find(agent.project_id, application_id)
        if application is None or application.piped_id != agent.piped_id:
            failed += [event.id for event in changes]
            continue
        own[application_id] = changes
        if answers:
            answers = await _unseal(stores, agent.project_id, application_id)

    async def work(transaction: Transaction) -> list[str]:
        refused: list[str] = []
        for application_id, changes in own.items():
            await stores.live_states.change_in(
                transaction, agent.project_id, application_id, _make_patch(changes, refused)
            )
        return refused

    return failed + await stores.database.write(work)


async def _unseal(stores: Stores, project_id: str, application_id: str) -> bool:
    """Brings a live state back into its row unless it is lost; returns whether the store answers.

    What stays in the store cannot be changed.
    """
    try:
        await stores.live_states.unseal(project_id, application_id)
    except LostDataError:
        return True
    except (BlobsUnavailableError, BlobsRefusedError):
        return False
    return True


def _make_patch(
    changes: Sequence[pb.KubernetesResourceStateEvent], refused: list[str]
) -> Callable[[ReportedMessage[Snapshot] | None], Snapshot | None]:
    """Returns what makes the changes, or adds their ids to the refused ones."""

    def edit(known: ReportedMessage[Snapshot] | None) -> Snapshot | None:
        if known is None:
            return None  # a snapshot will come, and hold all of it
        if known.is_sealed:  # still, or since we looked: no object is read in a transaction
            refused.extend(event.id for event in changes)
            return None
        snapshot = known.message
        for event in changes:
            apply(snapshot, event)
        judge_health(snapshot)
        limits.size("live state", snapshot, limits.LIVE_STATE_BYTES)
        return snapshot

    return edit


def apply(snapshot: Snapshot, event: pb.KubernetesResourceStateEvent) -> None:
    """Applies one change; ignores one older than the snapshot, which contains it already."""
    if _version(event.snapshot_version) < _version(snapshot.version):
        return
    resources = snapshot.kubernetes.resources
    place = next((i for i, each in enumerate(resources) if each.id == event.state.id), None)
    if event.type == pb.KubernetesResourceStateEvent.DELETED:
        if place is not None:
            del resources[place]
    elif place is not None:
        resources[place].CopyFrom(event.state)
    else:
        resources.append(event.state)
    snapshot.version.CopyFrom(event.snapshot_version)


def judge_health(snapshot: Snapshot) -> None:
    """Sets the health from that of the resources; without resources, the reported one stays."""
    generic = snapshot.application_live_state.resources
    if generic:
        healths: set[int] = {each.health_status for each in generic}
        if pb.ResourceState.UNHEALTHY in healths:
            snapshot.health_status = Snapshot.UNHEALTHY
        elif pb.ResourceState.UNKNOWN in healths:
            snapshot.health_status = Snapshot.UNKNOWN
        else:
            snapshot.health_status = Snapshot.HEALTHY
        return
    of_kind: list[Sequence[Any]] = [
        snapshot.kubernetes.resources,
        snapshot.cloudrun.resources,
        getattr(snapshot, "lambda").resources,
        snapshot.ecs.resources,
    ]
    healths = {each.health_status for resources in of_kind for each in resources}
    if not healths:
        return
    # The three kinds number their healths alike.
    if pb.KubernetesResourceState.OTHER in healths:
        snapshot.health_status = Snapshot.OTHER
    elif pb.KubernetesResourceState.UNKNOWN in healths:
        snapshot.health_status = Snapshot.UNKNOWN
    else:
        snapshot.health_status = Snapshot.HEALTHY


async def read_snapshot(stores: Stores, project_id: str, application_id: str) -> Snapshot:
    """Returns the last snapshot of an application.

    Raises NotFoundError when there is no such application, or none was reported.
    """
    await stores.applications.get(project_id, application_id)
    found = await stores.live_states.find(project_id, application_id)
    if found is None:
        raise NotFoundError(f"nothing is known yet of what runs of {application_id!r}")
    return found.message


def _version(version: pb.ApplicationLiveStateVersion) -> tuple[int, int]:
    return version.timestamp, version.index
