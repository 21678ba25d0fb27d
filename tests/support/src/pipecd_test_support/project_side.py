# SPDX-License-Identifier: Apache-2.0
"""A project of a served control plane, ways to make one thing of everything in it, its callers."""

import hashlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from google.protobuf.message import Message

from pipecd_controlplane.auth.caller import ApiKeyCaller
from pipecd_controlplane.store.audit import AuditFilter
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.hooks import StoredHook
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import api_keys, pipeds, sessions
from pipecd_controlplane.usecases.roles import RIGHT_LABEL
from pipecd_model.ids import new_id
from pipecd_model.secrets import KeyPair
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.stored_rows import hash_project
from pipecd_wire.model import (
    apikey_pb2,
    application_live_state_pb2,
    command_pb2,
    common_pb2,
    deployment_chain_pb2,
    deployment_pb2,
    deployment_trace_pb2,
    event_pb2,
    piped_pb2,
    project_pb2,
)
from pipecd_wire.options import rights_pb2
from pipecd_wire.pipecd.api import access_pb2, api_pb2, repositories_pb2
from pipecd_wire.pipecd.control import control_pb2
from pipecd_wire.rpc import call
from pipecd_wire.rpc.handlers import Method

PUBLIC_KEY = KeyPair.new(2048).public.decode()

Resource = project_pb2.ProjectRBACResource
Action = project_pb2.ProjectRBACPolicy

Rights = Mapping[
    project_pb2.ProjectRBACResource.ResourceType.ValueType,
    Collection[project_pb2.ProjectRBACPolicy.Action.ValueType],
]
"""The actions that are allowed, by resource."""

# The role of their own that both projects have, held by the group `auditors`.
AUDITOR: Rights = {Resource.API_KEY: {Action.LIST}, Resource.EVENT: {Action.LIST}}

# Another one, held by the group `openers`: it opens resources, and does nothing else.
OPENER = Action(
    resources=[
        Resource(type=kind, labels={RIGHT_LABEL: "open-resources"})
        for kind in (Resource.APPLICATION, Resource.DEPLOYMENT)
    ],
    actions=[Action.GET],
)


@dataclass
class Caller:
    """Somebody who calls, and what they show."""

    name: str
    kind: int | None
    """`pipecd.options.Caller`; None for who must not get in at all."""
    metadata: list[tuple[str, str]] = field(default_factory=list)
    writes: bool = False
    may: Rights = field(default_factory=dict)
    own_rights: Collection[int] = ()
    """`pipecd.options.OwnRight`."""

    def is_allowed(self, method: Method) -> bool:
        if self.kind is None or self.kind not in method.callers:
            return False
        if self.kind == rights_pb2.API_KEY:
            return self.writes or method.role == rights_pb2.READ_ONLY
        if self.kind == rights_pb2.SESSION:
            assert method.rbac is not None
            if method.own_right:
                return method.own_right in self.own_rights
            wanted = self.may.get(method.rbac.resource, set())
            has_role = bool(self.may or self.own_rights)
            return has_role and (method.rbac.ignored or method.rbac.action in wanted)
        return True


@dataclass
class ProjectSide:
    """One project, and ways to make things in it."""

    plane: ServedControlPlane
    project_id: str
    piped_id: str = ""
    piped_key: str = ""
    callers: list[Caller] = field(default_factory=list)
    """Everybody who calls with credentials of this project."""

    @property
    def stores(self) -> Stores:
        return self.plane.stores

    @property
    def build(self) -> MessageBuilder:
        return self.plane.build

    @property
    def registrar(self) -> ApiKeyCaller:
        """Who registers the project's pipeds."""
        return ApiKeyCaller(project_id=self.project_id, key_id="x", name="x", may_write=True)

    def id(self) -> str:
        """Ids that say whose they are: none of them may show up in an answer to the others."""
        return f"{self.project_id}-{new_id()}"

    def now(self) -> int:
        return int(time.time())

    def times(self) -> dict[str, int]:
        """Of now: what is old is cleaned up while the server runs."""
        return {"created_at": self.now(), "updated_at": self.now()}

    async def piped(self) -> str:
        piped_id, _ = await pipeds.register(
            self.stores,
            self.registrar,
            name=f"{self.project_id}-agent",
            description="",
            now=self.now,
        )
        return piped_id

    async def application(self, **fields: Any) -> str:
        application = self.build.application(
            id=self.id(),
            project_id=self.project_id,
            piped_id=self.piped_id,
            **self.times(),
            **fields,
        )
        await self.stores.applications.add(application)
        return application.id

    async def controlled(self, **parts: Any) -> str:
        """An application with a hold, a pin or a freeze."""
        application_id = await self.application()
        control = control_pb2.ApplicationControl(application_id=application_id, **parts)

        async def work(transaction: Transaction) -> None:
            await self.stores.controls.change_in(
                transaction, self.project_id, application_id, lambda _: control
            )

        await self.stores.database.write(work)
        return application_id

    async def set_rules(self, rules: control_pb2.ProjectRules) -> None:
        """Give the project windows or an emergency stop."""

        async def work(transaction: Transaction) -> None:
            await self.stores.rules.change_in(
                transaction, self.project_id, self.project_id, lambda _: rules
            )

        await self.stores.database.write(work)

    async def take_lease(self) -> None:
        """Let the piped be one that has watched, and so obeys commands of our own."""
        await self.stores.leases.change(
            self.project_id,
            self.piped_id,
            lambda known: replace(known, epoch=known.epoch + 1, instance_id="gone"),
        )

    def new_deployment(self, application_id: str, **fields: Any) -> deployment_pb2.Deployment:
        return self.build.deployment(
            id=self.id(),
            application_id=application_id,
            project_id=self.project_id,
            piped_id=self.piped_id,
            **self.times(),
            **fields,
        )

    async def deployment(self, **fields: Any) -> str:
        """One that runs a stage `s1`, which waits for approval and may be skipped as `s2`."""
        stages = [
            self.build.stage(
                "s1",
                status=deployment_pb2.STAGE_RUNNING,
                name="WAIT_APPROVAL",
                available_operation=deployment_pb2.MANUAL_OPERATION_APPROVE,
            ),
            self.build.stage(
                "s2",
                status=deployment_pb2.STAGE_RUNNING,
                name="ANALYSIS",
                available_operation=deployment_pb2.MANUAL_OPERATION_SKIP,
            ),
        ]
        deployment = self.new_deployment(
            await self.application(),
            **{"stages": stages, "status": deployment_pb2.DEPLOYMENT_RUNNING, **fields},
        )
        await self.stores.deployments.add(deployment)
        return deployment.id

    async def log(self) -> str:
        deployment_id = await self.deployment()
        key = LogKey(deployment_id=deployment_id, stage_id="s1", retried_count=0)
        await self.stores.stage_logs.append(
            self.project_id, key, self.build.blocks(1, 2), completed=False
        )
        return deployment_id

    async def command(self, **fields: Any) -> str:
        command = self.build.command(
            **{
                "id": self.id(),
                "project_id": self.project_id,
                "piped_id": self.piped_id,
                **self.times(),
                **fields,
            }
        )
        await self.stores.commands.add(command)
        return command.id

    async def plan_preview(self) -> str:
        payload = command_pb2.Command.BuildPlanPreview(
            repository_id="repo",
            head_branch="b",
            head_commit="c0ffee",
            base_branch="main",
            timeout=60,
        )
        return await self.command(
            type=command_pb2.Command.BUILD_PLAN_PREVIEW,
            build_plan_preview=payload,
            created_at=self.now() - 1000,
        )

    async def event(self) -> str:
        event = event_pb2.Event(
            id=self.id(),
            name="image",
            data="v1",
            project_id=self.project_id,
            event_key=hashlib.sha256(b"image").hexdigest(),
            created_at=self.now(),
            updated_at=self.now(),
        )
        await self.stores.events.add(event)
        return event.id

    async def chain(self) -> str:
        """One that is over: those that go on are looked at while the server runs."""
        chain = deployment_chain_pb2.DeploymentChain(
            id=self.id(),
            project_id=self.project_id,
            status=deployment_chain_pb2.DEPLOYMENT_CHAIN_SUCCESS,
            blocks=[deployment_chain_pb2.ChainBlock()],
            completed_at=self.now(),
            created_at=self.now(),
            updated_at=self.now(),
        )
        await self.stores.chains.add(chain)
        return chain.id

    async def trace(self) -> str:
        trace = deployment_trace_pb2.DeploymentTrace(
            id=self.id(),
            project_id=self.project_id,
            commit_hash="c0ffee",
            commit_url="https://git.example.com/c0ffee",
            commit_timestamp=self.now(),
            created_at=self.now(),
            updated_at=self.now(),
        )
        await self.stores.traces.add(trace)
        return trace.id

    def snapshot(
        self, application_id: str
    ) -> application_live_state_pb2.ApplicationLiveStateSnapshot:
        return application_live_state_pb2.ApplicationLiveStateSnapshot(
            application_id=application_id,
            piped_id=self.piped_id,
            project_id=self.project_id,
            version=application_live_state_pb2.ApplicationLiveStateVersion(timestamp=self.now()),
        )

    async def live_state(
        self, *resources: application_live_state_pb2.ResourceState, **fields: Any
    ) -> str:
        """An application with a live state of these resources."""
        application_id = await self.application(**fields)
        snapshot = self.snapshot(application_id)
        snapshot.application_live_state.resources.extend(resources)

        async def work(transaction: Transaction) -> None:
            await self.stores.live_states.change_in(
                transaction, self.project_id, application_id, lambda _known: snapshot
            )

        await self.stores.database.write(work)
        return application_id

    async def hook(self) -> str:
        """A hook whose secret nobody knows."""
        hook = repositories_pb2.Hook(
            id=new_id(),
            project_id=self.project_id,
            name=new_id(),
            host=repositories_pb2.Hook.GITHUB,
            created_at=self.now(),
        )
        await self.stores.hooks.add(StoredHook(hook=hook, secret=new_id()), most=2**31)
        return hook.id

    async def api_key(self, **fields: Any) -> str:
        return await api_keys.generate(
            self.stores,
            self.project_id,
            **{
                "name": f"{self.project_id}-key",
                "role": apikey_pb2.APIKey.READ_ONLY,
                "creator": "x",
                "now": self.now,
                **fields,
            },
        )

    async def session(self, **fields: Any) -> str:
        """The value of the cookie of somebody who signed in."""
        identity = sessions.UserIdentity(
            **{
                "subject": f"{self.project_id}-somebody",
                "via": access_pb2.Session.GITHUB,
                "roles": (),
                **fields,
            }
        )
        return await sessions.start(self.stores, self.project_id, identity, now=self.now)

    async def role(self) -> str:
        name = self.id()
        policy = Action(resources=[Resource(type=Resource.EVENT)], actions=[Action.LIST])

        def edit(project: project_pb2.Project) -> None:
            project.rbac_roles.append(project_pb2.ProjectRBACRole(name=name, policies=[policy]))

        await self.stores.projects.update(self.project_id, edit)
        return name

    async def group(self) -> str:
        name = self.id()

        def edit(project: project_pb2.Project) -> None:
            project.user_groups.append(project_pb2.ProjectUserGroup(sso_group=name, role="Viewer"))

        await self.stores.projects.update(self.project_id, edit)
        return name

    async def give_public_key(self) -> None:
        def edit(piped: piped_pb2.Piped) -> None:
            piped.secret_encryption.type = "KEY_PAIR"
            piped.secret_encryption.public_key = PUBLIC_KEY

        await self.stores.pipeds.update(self.project_id, self.piped_id, edit)

    async def as_piped(self, request: Message) -> None:
        """Let the piped of this side tell something first."""
        name = request.DESCRIPTOR.name.removesuffix("Request")
        agent = await self.plane.agent_with(self.project_id, self.piped_id, self.piped_key)
        await call(getattr(agent.service, name), request)

    async def read_new_audit(self, after: int) -> list[api_pb2.AuditRecord]:
        """Returns the audit records after one, with those of what was refused until now."""
        await self.plane.running.gathered_audit.flush()
        page = await self.stores.audit.page(
            self.project_id, AuditFilter(oldest_first=True), limit=1000, cursor=f"after-{after}"
        )
        return page.items

    async def read_audit_head(self) -> api_pb2.AuditHead:
        page = await self.stores.audit.page(self.project_id, AuditFilter(), limit=1, cursor="")
        return page.head

    async def fingerprint(self) -> str:
        """All that is kept of this project, as one hash."""
        return await hash_project(
            self.plane.stores.database, self.plane.running.data_dir, self.project_id
        )


async def add_side(plane: ServedControlPlane, project_id: str) -> ProjectSide:
    """Add a project with a piped."""
    side = ProjectSide(plane=plane, project_id=project_id)

    async def work(transaction: Transaction) -> None:
        project = project_pb2.Project(id=project_id, created_at=1, updated_at=1)
        project.static_admin.username = "admin"
        project.static_admin.password_hash = "$2b$10$" + "x" * 53
        policies = [
            Action(resources=[Resource(type=resource)], actions=actions)
            for resource, actions in AUDITOR.items()
        ]
        project.rbac_roles.append(project_pb2.ProjectRBACRole(name="Auditor", policies=policies))
        project.rbac_roles.append(project_pb2.ProjectRBACRole(name="Opener", policies=[OPENER]))
        for group, role in (("auditors", "Auditor"), ("openers", "Opener")):
            project.user_groups.append(project_pb2.ProjectUserGroup(sso_group=group, role=role))
        await plane.stores.projects.add_in(transaction, project)

    await plane.stores.database.write(work)
    side.piped_id, side.piped_key = await pipeds.register(
        plane.stores,
        side.registrar,
        name=f"{project_id}-agent",
        description="",
        now=side.now,
    )
    repository = common_pb2.ApplicationGitRepository(
        id="repo", remote="https://git.example.com/a.git", branch="main"
    )
    await plane.stores.pipeds.update(
        project_id, side.piped_id, lambda piped: piped.repositories.append(repository)
    )
    return side
