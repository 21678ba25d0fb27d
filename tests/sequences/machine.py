# SPDX-License-Identifier: Apache-2.0
"""Random sequences of what people do, of deaths, and of moves of the clock, as a state machine.

After each wait for quiet, and whenever something is looked at, `judge` compares what is to be seen
with `reference`. Which deployment a step is about is drawn as a number: what is drawn does not
depend on how fast the programs are.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pipecd_model.deployment import find_stage_to_decide
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.pipecd.api import windows_pb2 as rules
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl
from sequences.judge import find_unsettled, find_violations
from sequences.reference import (
    Kind,
    KnownApplication,
    Look,
    Reference,
    Version,
    Window,
    has_begun,
    is_open,
)
from sequences.world import LOOK_SECONDS, Worlds

QUIET_LIMIT_SECONDS = 120.0
"""How long it may take until nothing is to come any more, on a loaded machine."""

NAMES = ("plain", "newest", "single")
HOUR = 3600.0

applications = st.sampled_from(NAMES)
numbers = st.integers(min_value=0, max_value=5)
choices = st.lists(st.integers(min_value=0, max_value=30), min_size=1, max_size=3)
kinds = st.sampled_from(Kind)
Changes = list[tuple[str, Kind]]
changes = st.lists(st.tuples(applications, kinds), min_size=1, max_size=3)


class Sequences(RuleBasedStateMachine):
    """One example is one sequence, with three applications of its own."""

    worlds: ClassVar[Worlds]
    count: ClassVar[int] = 0
    outcomes: ClassVar[Counter[str]] = Counter()
    """What has come of all sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).worlds.take()
        self.known = Reference(applications={})
        self.names: dict[str, str] = {}
        self.is_settled = False
        self.reasons = 0
        self.story: list[str] = []

    # Before and after.

    @initialize()
    def register(self) -> None:
        Sequences.count += 1
        modes = {"plain": "queue", "newest": "supersede", "single": "reject"}
        for name in NAMES:
            self.names[name] = made = f"{name}-{self.count}"
            self.known.applications[made] = KnownApplication(
                name=made,
                mode=modes[name],
                locks=() if name == "single" else ("db",),
                labels={"env": "prod" if name == "plain" else "test"},
                versions=[Version(kind=Kind.GOOD)],
            )
        self.world.start_piped()
        self.world.commit(self.known, dict.fromkeys(self.names.values(), Kind.GOOD))
        for each in self.known.applications.values():
            self.world.register(each)
        self._settle()

    def teardown(self) -> None:
        """What has failed may have left anything: the next sequence has a world of its own."""
        has_failed = sys.exc_info()[0] is not None
        try:
            if not has_failed:
                has_failed = True
                self._end()
                has_failed = False
        finally:
            if has_failed:
                self.worlds.close()

    def _end(self) -> None:
        self._settle()
        self._lift_all()
        self._settle()
        for name, application in self.known.applications.items():
            for number in range(len(application.versions)):
                self.let_go(name, number)
        while open_ones := self._list_open(self._look()):  # the end of one may make the next
            for each in open_ones:
                self._cancel(each.id)
            self._settle()
        self._count_outcomes(self._look())
        for application in self.known.applications.values():
            self.world.remove(application)

    def _count_outcomes(self, look: Look) -> None:
        self.outcomes["sequences"] += 1
        self.outcomes["steps"] += len(self.story)
        for each in (each for found in look.deployments.values() for each in found):
            status = pb.DeploymentStatus.Name(each.status).removeprefix("DEPLOYMENT_").lower()
            is_superseded = "superseded by" in each.status_reason
            self.outcomes["superseded" if is_superseded else status] += 1

    def _lift_all(self) -> None:
        if self.known.stop:
            self._resume()
        for each in self.known.applications.values():
            if each.freeze:
                self._set_freeze(each, frozen=False)
            if each.pin:
                self._release_pin(each)
        for name in list(self.known.windows):
            self._delete_window(name)

    # What is done.

    @rule(changes=changes)
    def commit(self, changes: Changes) -> None:
        """One commit after the other, as fast as git makes them."""
        for name, kind in changes:
            self._commit(self._application(name), kind)

    @rule(changes=changes)
    def commit_and_settle(self, changes: Changes) -> None:
        """One commit, all that follows from it, then the next."""
        for name, kind in changes:
            self._commit(self._application(name), kind)
            self._settle()

    @rule()
    def settle(self) -> None:
        self._settle()

    @rule(choices=choices)
    def act(self, choices: list[int]) -> None:
        """A person does what can be done just now with a deployment or an application."""
        for number in choices:
            possible = self._list_possible(self._look())
            if possible:
                possible[number % len(possible)]()

    @rule(name=applications)
    def freeze_or_lift(self, name: str) -> None:
        application = self._application(name)
        self._set_freeze(application, frozen=not application.freeze)

    @rule()
    def stop_or_resume(self) -> None:
        if self.known.stop:
            self._resume()
            return
        self.known.stop = self._make_reason("stop")
        request = rules.StopDeploymentsRequest(reason=self.known.stop)
        self._ask(self.world.windows.StopDeployments, request)
        self._bring_into_force()

    @rule(
        slot=st.integers(min_value=0, max_value=1),
        denies=st.booleans(),
        scope=st.sampled_from(["project", "prod", "test", *NAMES]),
        starts_in=st.integers(min_value=-1, max_value=1),
    )
    def set_or_delete_window(self, slot: int, denies: bool, scope: str, starts_in: int) -> None:
        """Windows begin and end at half hours, clocks move by hours: nothing is at the edge."""
        if slot < len(self.known.windows):
            self._delete_window(list(self.known.windows)[slot])
            return
        start = self.world.clock.now() + (starts_in - 0.5) * HOUR
        window = Window(
            start=start,
            end=start + 2 * HOUR,
            denies=denies,
            application=self.names.get(scope, ""),
            label=scope if scope in {"prod", "test"} else "",
        )
        name = self._make_reason("window")
        self.known.windows[name] = window
        self.world.set_window(name, window, self.known)
        self._note(f"window {name}: {window}")
        self._bring_into_force()

    @rule(hours=st.integers(min_value=1, max_value=3))
    def move_clock(self, hours: int) -> None:
        self._check(self._look())
        was_settled = self.is_settled
        self.world.clock.move(hours)
        self._note(f"the clock moves by {hours} h")
        self.known.forget_lifted(self.world.clock.now())
        if was_settled:
            self.known.note_rules(self._look())
        self.world.have_queues_looked_at()
        self._settle()

    @rule(name=applications, number=numbers, cancels=st.booleans())
    def roll_back(self, name: str, number: int, cancels: bool) -> None:
        """To any version that was deployed; the pin that comes of it is released by `act`."""
        application = self._application(name)
        made = self._roll_back(application, number)
        if made is None:
            return
        if cancels:
            self._wait_made(application, made)
            self._cancel(made)
        self._bring_into_force()

    @rule(name=applications)
    def insist(self, name: str) -> None:
        """A person wants the held commit, and whatever waits, to be deployed in spite of all."""
        application = self._application(name)
        self._settle()
        look = self._look()
        if look.controls.get(application.name, ApplicationControl()).HasField("hold"):
            self._release_hold(application)
            self._settle()
        for each in self._look().deployments[application.name]:
            if is_open(each) and not has_begun(each):
                self._override(each.id)

    def _roll_back(self, application: KnownApplication, number: int) -> str | None:
        """Returns the deployment that will come of it; None when there is nothing to go back to."""
        found = self._look().deployments[application.name]
        done = [each for each in found if each.status == pb.DEPLOYMENT_SUCCESS]
        if not done:
            return None
        done.sort(key=lambda each: (self.known.version_of(each, application.name), each.id))
        reason = self._make_reason("roll-back")
        request = own.RollBackApplicationRequest(
            application_id=application.id,
            deployment_id=done[number % len(done)].id,
            reason=reason,
        )
        answer = self._ask(self.world.client.applications.RollBackApplication, request)
        if answer is None:
            return None
        made: str = answer.deployment_id
        self.known.roll_backs[made] = frozenset(each.id for each in found)
        application.asked_for.add(made)
        application.pin, application.pinned_by = reason, made
        self.known.bars.pop((application.name, "pin"), None)
        return made

    @rule(changes=changes, starts=st.booleans())
    def commit_and_kill_piped(self, changes: Changes, starts: bool) -> None:
        """It stays away until it is needed, unless it is started at once."""
        self.commit(changes)
        self._kill_piped()
        if starts:
            self.world.start_piped()

    @rule(changes=changes, kills_piped=st.booleans())
    def kill_server(self, changes: Changes, kills_piped: bool) -> None:
        """Perhaps piped as well; there are commits while it is away."""
        self.world.kill_server()
        self._note("the control plane is killed")
        if kills_piped:
            self._kill_piped()
        self.commit(changes)
        self.world.start_server()

    @rule()
    def kill_piped_and_start_it(self) -> None:
        self._kill_piped()
        self.world.start_piped()

    # How.

    def _application(self, name: str) -> KnownApplication:
        return self.known.applications[self.names[name]]

    def _make_reason(self, what: str) -> str:
        """Returns a text that nothing else was said with."""
        self.reasons += 1
        return f"{what} {self.reasons} of {self.count};"

    def _note(self, what: str) -> None:
        self.story.append(what)
        self.is_settled = False

    def _kill_piped(self) -> None:
        if self.world.site.alive():
            self.world.kill_piped()
            self._note("piped is killed")

    def _ask(self, method: Any, request: Any) -> Any:
        answer = self.world.ask(method, request)
        told = " ".join(str(request).split())
        self._note(f"{type(request).__name__} {told} -> {'refused' if answer is None else 'done'}")
        return answer

    def _commit(self, application: KnownApplication, kind: Kind) -> None:
        application.versions.append(Version(kind=kind))
        made = self.world.commit(self.known, {application.name: kind})
        self._note(f"commit {made[:7]}: {application.name} version {application.head}, {kind}")

    def let_go(self, name: str, number: int) -> None:
        """Give the script of a version what it waits for."""
        self.known.applications[name].versions[number].is_let_go = True
        self.world.file_of(name, number).touch()
        self._note(f"{name} version {number} is let go")

    def _list_possible(self, look: Look) -> list[Callable[[], None]]:
        """Returns what a person can do, in an order that does not depend on ids."""
        found: list[Callable[[], None]] = []
        for name, application in self.known.applications.items():
            deployments = [each for each in look.deployments[name] if is_open(each)]
            deployments.sort(key=lambda each: (self.known.version_of(each, name), each.id))
            for each in deployments:
                found += self._list_possible_with(each)
            for number, version in enumerate(application.versions):
                if version.kind is Kind.GATED and not version.is_let_go:
                    found.append(partial(self.let_go, name, number))
            if application.pin:
                found.append(partial(self._release_pin, application))
            if name in look.controls and look.controls[name].HasField("hold"):
                found.append(partial(self._release_hold, application))
        return found

    def _list_possible_with(self, deployment: pb.Deployment) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = [partial(self._cancel, deployment.id)]
        if deployment.id not in self.known.overridden:
            found.append(partial(self._override, deployment.id))
        if "WAIT_APPROVAL" in _list_running(deployment):
            found.append(partial(self._approve, deployment))
        is_decided = deployment.id in self.known.given_up | self.known.cancelled
        if find_stage_to_decide(deployment) is not None and not is_decided:
            found.append(partial(self._retry, deployment, fixed=True))
            found.append(partial(self._retry, deployment, fixed=False))
            found.append(partial(self._give_up, deployment))
        return found

    def _approve(self, deployment: pb.Deployment) -> None:
        request = own.ApproveStageRequest(deployment_id=deployment.id)
        if self._ask(self.world.client.deployments.ApproveStage, request) is not None:
            self.known.approved.add(deployment.id)

    def _retry(self, deployment: pb.Deployment, *, fixed: bool) -> None:
        self._settle()  # one that is on its way counts once
        if fixed:
            application = self.known.applications[deployment.application_name]
            self.let_go(application.name, self.known.version_of(deployment, application.name))
        request = own.RetryStageRequest(deployment_id=deployment.id)
        if self._ask(self.world.client.deployments.RetryStage, request) is not None:
            self.known.retries[deployment.id] += 1

    def _give_up(self, deployment: pb.Deployment) -> None:
        self._settle()
        look = self._look().find(deployment.id)
        if look is None or find_stage_to_decide(look) is None:
            return  # else it is the application that is rolled back
        request = own.RollBackDeploymentRequest(deployment_id=deployment.id)
        if self._ask(self.world.client.deployments.RollBackDeployment, request) is not None:
            self.known.given_up.add(deployment.id)

    def _override(self, deployment_id: str) -> None:
        self.known.overridden.add(deployment_id)
        request = rules.OverrideRulesRequest(deployment_id=deployment_id, reason="a test")
        self._ask(self.world.windows.OverrideRules, request)

    def _release_hold(self, application: KnownApplication) -> None:
        request = own.ReleaseHoldRequest(application_id=application.id)
        answer = self._ask(self.world.client.applications.ReleaseHold, request)
        if answer is not None:
            self.known.released.add(answer.deployment_id)
            application.asked_for.add(answer.deployment_id)

    def _cancel(self, deployment_id: str) -> None:
        request = own.CancelDeploymentRequest(deployment_id=deployment_id)
        if self._ask(self.world.client.deployments.CancelDeployment, request) is not None:
            self.known.cancelled.add(deployment_id)

    def _set_freeze(self, application: KnownApplication, *, frozen: bool) -> None:
        if not frozen:
            self._check(self._look())
            self.known.bars.pop((application.name, "freeze"), None)
        application.freeze = self._make_reason("freeze") if frozen else ""
        request = own.SetFreezeRequest(
            application_id=application.id, frozen=frozen, reason=application.freeze
        )
        self._ask(self.world.client.applications.SetFreeze, request)
        if frozen:
            self._bring_into_force()

    def _resume(self) -> None:
        self._check(self._look())
        self.known.stop = ""
        self.known.effects_at_stop = None
        for each in self.known.applications:
            self.known.bars.pop((each, "stop"), None)
        self._ask(self.world.windows.ResumeDeployments, rules.ResumeDeploymentsRequest())

    def _delete_window(self, name: str) -> None:
        self._check(self._look())
        del self.known.windows[name]
        self.known.forget_lifted(self.world.clock.now())
        self.world.delete_window(name)
        self._note(f"window {name} is deleted")
        self._bring_into_force()

    def _release_pin(self, application: KnownApplication) -> None:
        look = self._look()
        self._check(look)
        pinned_by, application.pin, application.pinned_by = application.pinned_by, "", ""
        self.known.bars.pop((application.name, "pin"), None)
        application.pin_releases += 1
        before = {each.id for each in look.deployments[application.name]}
        application.before_release = frozenset(before - {pinned_by})
        request = own.ReleasePinRequest(application_id=application.id)
        assert self._ask(self.world.client.applications.ReleasePin, request) is not None

    def _bring_into_force(self) -> None:
        """A rule holds from now on: for all that has not begun, when it was quiet before.

        Otherwise something may begin before piped has heard of it.
        """
        if not self.is_settled:
            self._settle()
        self.known.note_rules(self._look())
        self.is_settled = False

    def _wait_made(self, application: KnownApplication, deployment_id: str) -> None:
        """Wait until piped has made the deployment that was asked for."""
        self.world.start_piped()
        limit = time.monotonic() + QUIET_LIMIT_SECONDS
        while (look := self._look()).find(deployment_id) is None:
            if time.monotonic() > limit:
                self._fail("This never came:", [f"{application.name}: {deployment_id}"], look)
            time.sleep(LOOK_SECONDS)  # between looks at other processes

    def _list_open(self, look: Look) -> list[pb.Deployment]:
        return [each for found in look.deployments.values() for each in found if is_open(each)]

    def _look(self) -> Look:
        return self.world.look(self.known)

    def _check(self, look: Look) -> None:
        found = find_violations(self.known, look)
        if found:
            self._fail("This must never be:", found, look)

    def _settle(self) -> None:
        """Wait until nothing is to come any more by itself."""
        self.world.start_piped()
        limit = time.monotonic() + QUIET_LIMIT_SECONDS
        while True:
            look = self._look()
            self._check(look)
            missing = find_unsettled(self.known, look)
            if not missing:
                break
            if time.monotonic() > limit:
                self._fail("This never came:", missing, look)
            time.sleep(LOOK_SECONDS)  # between looks at other processes
        self.known.note_rules(look)
        self.is_settled = True

    def _fail(self, what: str, found: list[str], look: Look) -> None:
        lines = [what, *(f"  {each}" for each in found), "What was done:"]
        lines += [f"  {each}" for each in self.story]
        lines.append("What there is:")
        for name, deployments in look.deployments.items():
            control = " ".join(str(look.controls.get(name, "")).split())
            lines.append(f"  {name}: {control} {look.sync_reasons[name]!r}")
            for each in deployments:
                version = self.known.version_of(each, name)
                status = pb.DeploymentStatus.Name(each.status)
                queued = look.queue.get(each.id)
                said = f" [{queued.sentence}]" if queued else ""
                begun = "begun" if has_begun(each) else "not begun"
                lines.append(
                    f"    {each.id} version {version} {status} {begun}"
                    f" {_list_running(each)} {each.status_reason!r}{said}"
                )
        lines.append(f"See {self.world.folder}")
        text = "\n".join(lines)
        (self.world.folder / "failure.txt").write_text(text + "\n")  # Hypothesis tries it again
        raise AssertionError(text)


def _list_running(deployment: pb.Deployment) -> list[str]:
    return [each.name for each in deployment.stages if each.status == pb.STAGE_RUNNING]
