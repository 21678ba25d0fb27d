# SPDX-License-Identifier: Apache-2.0
"""Applications that an agent registers itself, because it found their files in its repositories.

An agent registers for itself alone. What a person decided stays: an application that was deleted is
not registered again, and one that another agent has is not taken from it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.applications import (
    NewApplication,
    build_application,
    check_new,
)
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model.errors import ConfigError, PipecdError
from pipecd_model.gitnames import BadGitNameError
from pipecd_model.registration import GitPlace, get_place, make_registered_id
from pipecd_runtime.logs import logger
from pipecd_wire.model import application_pb2, common_pb2, piped_pb2
from pipecd_wire.pipecd.push import push_pb2 as pb

log = logger(__name__)

MOST_AT_ONCE: Final = 100
MOST_OF_PIPED: Final = 1000
"""Applications of one piped, however they were registered: beyond that a person decides."""

Kind = pb.RegistrationOutcome


async def register(
    stores: Stores,
    agent: Agent,
    found: Sequence[pb.FoundApplication],
    now: Now,
    *,
    most: int = MOST_OF_PIPED,
) -> list[pb.RegistrationOutcome]:
    """Registers what can be registered, until the piped has `most` applications.

    Returns what became of each, in the order of `found`.
    """
    if len(found) > MOST_AT_ONCE:
        raise ConfigError(f"invalid request: {len(found)} applications, at most {MOST_AT_ONCE}")
    piped = await stores.pipeds.get(agent.project_id, agent.piped_id)
    at = now()

    async def work(transaction: Transaction) -> list[tuple[pb.RegistrationOutcome, bool]]:
        known = _KnownApplications(
            agent.piped_id,
            await stores.applications.list_all_in(transaction, agent.project_id),
            most,
        )
        made = []
        for each in found:
            application, outcome = _decide(piped, each, known, at)
            if application is not None:
                await stores.applications.add_in(transaction, application)
                known.add(application)
            made.append((outcome, application is not None))
        return made

    outcomes = await stores.database.write(work)
    for each, (outcome, is_new) in zip(found, outcomes, strict=True):
        if is_new:
            log.info(
                "application.registered",
                project_id=agent.project_id,
                piped_id=agent.piped_id,
                application_id=outcome.application_id,
                application=each.name,
                repository=each.repository_id,
                path=each.path,
            )
    return [outcome for outcome, _ in outcomes]


@dataclass(slots=True)
class _KnownApplications:
    """The applications of the project, by what tells them apart."""

    piped_id: str
    applications: Iterable[application_pb2.Application]
    most: int
    by_id: dict[str, application_pb2.Application] = field(default_factory=dict)
    by_place: dict[GitPlace, application_pb2.Application] = field(default_factory=dict)
    by_repository: dict[tuple[str, str, str], application_pb2.Application] = field(
        default_factory=dict
    )
    """Those of this piped, by the id that it gives the repository, path and file."""
    by_name: dict[str, application_pb2.Application] = field(default_factory=dict)
    count: int = 0
    """How many of this piped are not deleted."""

    def __post_init__(self) -> None:
        # Deleted ones first: one that is not deleted wins where both are at the same place.
        for application in sorted(self.applications, key=lambda each: not each.deleted):
            self.add(application)

    def add(self, application: application_pb2.Application) -> None:
        self.by_id[application.id] = application
        try:
            place = get_place(application.git_path)
        except BadGitNameError:
            return  # no agent could deploy it
        self.by_place[place] = application
        is_ours = application.piped_id == self.piped_id
        if is_ours:
            key = (application.git_path.repo.id, place.path, place.filename)
            self.by_repository[key] = application
        if not application.deleted:
            self.by_name[application.name] = application
            self.count += is_ours


def _decide(
    piped: piped_pb2.Piped, found: pb.FoundApplication, known: _KnownApplications, at: int
) -> tuple[application_pb2.Application | None, pb.RegistrationOutcome]:
    """Returns the application to add, None for none, and what the agent is told."""
    try:
        new = _read(piped, found)
        application = build_application(
            piped, new, project_id=piped.project_id, application_id="", at=at
        )
        place = get_place(application.git_path)
    except PipecdError as error:
        return None, _tell(Kind.INVALID, error.with_hint())
    application.id = make_registered_id(piped.project_id, place)
    there = (
        known.by_repository.get((found.repository_id, place.path, place.filename))
        or known.by_place.get(place)
        or known.by_id.get(application.id)
    )
    if there is not None:
        return None, _describe_existing(there, piped, application.id)
    if (namesake := known.by_name.get(new.name)) is not None:
        return None, _tell(
            Kind.NAME_TAKEN,
            f"the application {namesake.id} has the name {new.name!r} already:"
            " give the file another name, or register it by hand",
        )
    if known.count >= known.most:
        return None, _tell(
            Kind.TOO_MANY,
            f"the piped has {known.count} applications: register more of them by hand",
        )
    return application, pb.RegistrationOutcome(kind=Kind.REGISTERED, application_id=application.id)


def _read(piped: piped_pb2.Piped, found: pb.FoundApplication) -> NewApplication:
    """Returns what the agent asks for. Raises PipecdError for what cannot be registered."""
    new = NewApplication(
        name=found.name,
        piped_id=piped.id,
        git_path=common_pb2.ApplicationGitPath(
            repo=common_pb2.ApplicationGitRepository(id=found.repository_id),
            path=found.path,
            config_filename=found.config_filename,
        ),
        description=found.description,
        labels=found.labels,
        deploy_targets=found.deploy_targets_by_plugin,
    )
    check_new(new)
    return new


def _describe_existing(
    there: application_pb2.Application, piped: piped_pb2.Piped, registered_id: str
) -> pb.RegistrationOutcome:
    if there.deleted:
        return _tell(
            Kind.DELETED,
            f"{there.name!r} was deleted: only a person registers it again, with"
            " `pipectl application add`",
            there.id,
        )
    if there.piped_id != piped.id:
        return _tell(Kind.OF_ANOTHER_AGENT, f"the piped {there.piped_id} has it already", there.id)
    kind = Kind.REGISTERED if there.id == registered_id else Kind.REGISTERED_BEFORE
    return pb.RegistrationOutcome(kind=kind, application_id=there.id)


def _tell(
    kind: pb.RegistrationOutcome.Kind.ValueType, sentence: str, application_id: str = ""
) -> pb.RegistrationOutcome:
    return pb.RegistrationOutcome(kind=kind, sentence=sentence, application_id=application_id)
