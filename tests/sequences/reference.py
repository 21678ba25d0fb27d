# SPDX-License-Identifier: Apache-2.0
"""What must be the case, kept by the test: versions, rules in force, what people asked for. Pure.

It knows what was done from outside, and nothing of how the programs decide. A version is what an
application's folder holds; several commits of the repository may have the same one.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl, QueuedDeployment

OPEN = frozenset(
    {
        pb.DEPLOYMENT_PENDING,
        pb.DEPLOYMENT_PLANNED,
        pb.DEPLOYMENT_RUNNING,
        pb.DEPLOYMENT_ROLLING_BACK,
    }
)


class Kind(StrEnum):
    """What the deployment of a version does."""

    GOOD = "good"
    FAILING = "failing"
    APPROVAL = "approval"
    """A script, an approval, a script."""
    GATED = "gated"
    """A script that comes to its end when a file is there, and another one."""
    KEPT_OPEN = "kept open"
    """A script that fails until a file is there, with `onFailure: wait`."""


@dataclass(slots=True, kw_only=True)
class Version:
    """One state of an application's folder."""

    kind: Kind
    is_let_go: bool = False
    """Whether the file is there that its script wants."""


@dataclass(slots=True, kw_only=True)
class KnownApplication:
    """One application, as people have left it."""

    name: str
    mode: str
    locks: tuple[str, ...]
    labels: dict[str, str]
    id: str = ""
    versions: list[Version] = field(default_factory=list)
    freeze: str = ""
    """Why it is frozen; empty when it is not. Each reason is given once: who says it is up to
    date."""
    pin: str = ""
    """Why it was rolled back and is pinned; empty when it is not."""
    pinned_by: str = ""
    """The deployment of the roll-back that pins it."""
    pin_releases: int = 0
    asked_for: set[str] = field(default_factory=set)
    """Deployments that people have asked for by roll-backs and releases."""
    before_release: frozenset[str] = frozenset()
    """Deployments that were there when its pin was last released, but for the one that pinned."""
    statuses: dict[str, "pb.DeploymentStatus.ValueType"] = field(default_factory=dict)
    """Of all deployments that were ever seen."""
    begun: list[int] = field(default_factory=list)
    """The versions that were deployed by themselves, in the order in which that began."""
    begun_ids: set[str] = field(default_factory=set)

    @property
    def head(self) -> int:
        return len(self.versions) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window as the test has set it, in seconds of the clock that the programs see."""

    start: float
    end: float
    denies: bool
    application: str = ""
    label: str = ""
    """The value of the label `env`; with neither, it is for all."""

    def is_about(self, application: KnownApplication) -> bool:
        if self.application:
            return self.application == application.name
        return not self.label or application.labels["env"] == self.label

    def covers(self, at: float) -> bool:
        return self.start <= at < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is to be seen from outside at one time."""

    at: float
    """By the clock of the programs."""
    deployments: dict[str, list[pb.Deployment]]
    """By application."""
    queue: dict[str, QueuedDeployment]
    controls: dict[str, ApplicationControl]
    sync_reasons: dict[str, str]
    effects: tuple[str, ...]
    """What the scripts have written, a line for each: deployment, step."""

    def find(self, deployment_id: str) -> pb.Deployment | None:
        every = (each for found in self.deployments.values() for each in found)
        return next((each for each in every if each.id == deployment_id), None)


@dataclass(slots=True, kw_only=True)
class Reference:
    """All that people did, and what follows from it."""

    applications: dict[str, KnownApplication]
    commits: dict[str, dict[str, int]] = field(default_factory=dict)
    """By commit, the version of each application."""
    roll_backs: dict[str, frozenset[str]] = field(default_factory=dict)
    """With the deployments that were seen before, of which it takes the place."""
    released: set[str] = field(default_factory=set)
    """Deployments that a person's release of a hold made."""
    overridden: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    """Deployments that a person chose to roll back while they were kept open."""
    approved: set[str] = field(default_factory=set)
    retries: Counter[str] = field(default_factory=Counter)
    stop: str = ""
    """Why there is an emergency stop; empty when there is none."""
    windows: dict[str, Window] = field(default_factory=dict)
    bars: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """By application and rule in force, the deployments that had begun before."""
    effects_at_stop: frozenset[str] | None = None

    def version_of(self, deployment: pb.Deployment, name: str) -> int:
        return self.commits[deployment.trigger.commit.hash][name]

    def is_asked(self, deployment_id: str) -> bool:
        """Returns whether a person named what to deploy."""
        return deployment_id in self.roll_backs or deployment_id in self.released

    def list_rules(self, application: KnownApplication, at: float) -> dict[str, str]:
        """Returns the rules that are in force for an application, and what tells of each."""
        told = {"stop": self.stop, "freeze": application.freeze, "pin": application.pin}
        found = {rule: reason for rule, reason in told.items() if reason}
        about = {name: each for name, each in self.windows.items() if each.is_about(application)}
        for name, window in about.items():
            if window.denies and window.covers(at):
                found[f"window {name}"] = f"{name!r} denies"
        allowing = {name: each for name, each in about.items() if not each.denies}
        if allowing and not any(each.covers(at) for each in allowing.values()):
            names = ", ".join(sorted(map(repr, allowing)))
            found[f"allowing {names}"] = f"only within the window {names}"
        return found

    def passes(self, deployment_id: str, rule: str) -> bool:
        """Returns whether a rule does not bind a deployment."""
        if deployment_id in self.roll_backs:
            return True
        return deployment_id in self.overridden and rule != "pin"

    def list_binding(
        self, application: KnownApplication, deployment_id: str, at: float
    ) -> dict[str, str]:
        """Returns the rules because of which a deployment may not begin."""
        rules = self.list_rules(application, at)
        return {rule: told for rule, told in rules.items() if not self.passes(deployment_id, rule)}

    def forget_lifted(self, at: float) -> None:
        """Forget the rules that are not in force any more."""
        in_force = self._list_in_force(at)
        self.bars = {key: before for key, before in self.bars.items() if key in in_force}

    def _list_in_force(self, at: float) -> set[tuple[str, str]]:
        return {
            (application.name, rule)
            for application in self.applications.values()
            for rule in self.list_rules(application, at)
        }

    def note_rules(self, look: Look) -> None:
        """Keep, for each rule that has come into force, what had begun before it."""
        self.bars = {
            key: self.bars.get(key, frozenset(self.applications[key[0]].begun_ids))
            for key in self._list_in_force(look.at)
        }
        if not self.stop:
            self.effects_at_stop = None
        elif self.effects_at_stop is None:
            self.effects_at_stop = frozenset(look.effects)


def is_open(deployment: pb.Deployment) -> bool:
    return deployment.status in OPEN


def has_begun(deployment: pb.Deployment) -> bool:
    """Returns whether anything of a deployment was done; one may be cancelled before."""
    if deployment.status == pb.DEPLOYMENT_PENDING:
        return False
    if deployment.status != pb.DEPLOYMENT_CANCELLED:
        return True
    untouched = {pb.STAGE_NOT_STARTED_YET, pb.STAGE_CANCELLED}
    return any(each.status not in untouched for each in deployment.stages)
