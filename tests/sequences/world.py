# SPDX-License-Identifier: Apache-2.0
"""A control plane, a piped with its plugins and a repository: real programs, driven from outside.

Made once for many sequences; each has applications of its own. The programs see a clock that the
test moves.
"""

import asyncio
import json
import os
import signal
import struct
import time
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration

from chaos.places import SEAMS
from pipecd_test_support.piped_site import ServerProcess, SiteClient, register_site
from pipecd_wire.apiservice import service_pb2 as external
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.pipecd.api import windows_pb2 as rules
from pipecd_wire.pipecd.api.windows_pb2_grpc import WindowServiceStub
from pipecd_wire.pipecd.control.control_pb2 import Window as SetWindow
from pipecd_wire.rpc import CallError, Retry, call, connect
from sequences.reference import Kind, KnownApplication, Look, Reference, Window

T = TypeVar("T")

PATIENT = Retry(attempts=200, base_seconds=0.02, cap_seconds=0.2)
"""The control plane has just been started again."""
LOOK_SECONDS = 0.03
LONG = "10000h"
"""Clocks are moved by hours; what waits for a person waits on."""
NOBODY = "nobody"
"""A window for applications with a label that none has: setting it has all queues looked at."""


class Clock:
    """The clock that control plane and piped see."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder / name for name in ("piped", "pipecd")]
        self.hours_off = 0
        folder.mkdir()
        paths = [str(SEAMS), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.variables = {
            "PIPECD_CHAOS_CLOCK": str(folder),
            "PYTHONPATH": os.pathsep.join(paths),
        }
        self.move(0)

    def move(self, hours: int) -> None:
        self.hours_off += hours
        for file in self._files:
            with file.open("r+b" if file.exists() else "wb") as opened:
                opened.write(struct.pack("d", self.hours_off * 3600.0))

    def now(self) -> float:
        return time.time() + self.hours_off * 3600.0


class World:
    """The programs, and what a person can do with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.effects = folder / "effects"
        self.effects.touch()
        self.clock = Clock(folder / "clocks")
        self.runner = asyncio.Runner()
        (folder / "server").mkdir()
        self.server = ServerProcess(folder / "server")
        self.server.variables = self.clock.variables
        try:
            self.server.start()
        except BaseException:
            self.server.kill()
            raise
        (folder / "site").mkdir()
        self.site = register_site(folder / "site", self.server)
        self.site.variables = self.clock.variables
        self.site.commit({"README": "sequences"})
        self.site.configure("scriptrun", "waitapproval")
        self.site.start()
        self._opened = AsyncExitStack()
        self.client: SiteClient
        self.windows: Any
        self.run(self._connect())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something to its end."""
        return self.runner.run(work)

    def close(self) -> None:
        """End the programs, whatever state they are in."""
        with ExitStack() as ends:
            ends.callback(self.server.kill)
            ends.callback(self.site.close)
            ends.callback(self.runner.close)
            self.run(self._opened.aclose())

    async def _connect(self) -> None:
        await self._opened.aclose()
        self._opened = AsyncExitStack()
        self.client = await self._opened.enter_async_context(self.site.client())
        key = f"API-KEY {self.server.admin_key}"
        channel = await self._opened.enter_async_context(
            connect(self.server.address, metadata=lambda: [("authorization", key)])
        )
        self.windows = WindowServiceStub(channel)

    # What dies.

    def kill_piped(self) -> None:
        """End piped and its plugins at once; scripts live on."""
        os.killpg(self.site.pid, signal.SIGKILL)
        self.site.require_process().wait(60)

    def start_piped(self) -> None:
        if not self.site.alive():
            self.site.start()

    def kill_server(self) -> None:
        self.server.kill()

    def start_server(self) -> None:
        self.server.start()
        self.run(self._connect())

    # What people do.

    def ask(self, method: Any, request: Any) -> Any:
        """Call the control plane; None when it refuses: it is over, or not made yet."""
        try:
            return self.run(call(method, request, retry=PATIENT))
        except CallError as error:
            if error.status in {"FAILED_PRECONDITION", "NOT_FOUND"}:
                return None
            raise

    def commit(self, known: Reference, changes: Mapping[str, Kind]) -> str:
        """Commit a new version of applications."""
        files: dict[str, str | None] = {}
        for name, kind in changes.items():
            application = known.applications[name]
            files[f"{name}/app.pipecd.yaml"] = self._write_file(application, kind)
        made = self.site.commit(files)
        known.commits[made] = {each.name: each.head for each in known.applications.values()}
        return made

    def file_of(self, name: str, version: int) -> Path:
        """What the script of a version waits for."""
        return self.folder / f"{name}-{version}"

    def _write_file(self, application: KnownApplication, kind: Kind) -> str:
        wanted = self.file_of(application.name, application.head)
        scripts = {
            Kind.GOOD: ["one"],
            Kind.FAILING: ["one"],
            Kind.APPROVAL: ["one", "", "two"],
            Kind.GATED: ["one", "two"],
            Kind.KEPT_OPEN: ["one"],
        }[kind]
        after = {
            Kind.FAILING: "\nfalse",
            Kind.GATED: f"\nwhile [ ! -e {wanted} ]; do sleep 0.05; done",
            Kind.KEPT_OPEN: f"\ntest -e {wanted}",
        }.get(kind, "")
        stages = [
            _make_script(self.effects, step, after if step == "one" else "")
            if step
            else {"name": "WAIT_APPROVAL", "timeout": LONG}
            for step in scripts
        ]
        return json.dumps(
            {
                "apiVersion": "pipecd.dev/v1beta1",
                "kind": "Application",
                "spec": {
                    "name": application.name,
                    "labels": {**application.labels, "version": str(application.head)},
                    "timeout": LONG,
                    "onFailure": "wait" if kind is Kind.KEPT_OPEN else "rollback",
                    "onFailureTimeout": LONG,
                    "queue": {"mode": application.mode, "locks": list(application.locks)},
                    "pipeline": {"stages": stages},
                    "planner": {"alwaysUsePipeline": True},
                },
            }
        )

    def register(self, application: KnownApplication) -> None:
        application.id = self.run(self.client.register(application.name))

    def remove(self, application: KnownApplication) -> None:
        request = external.DeleteApplicationRequest(application_id=application.id)
        self.run(call(self.client.api.DeleteApplication, request, retry=PATIENT))

    def set_window(self, name: str, window: Window, known: Reference) -> None:
        about = known.applications[window.application].id if window.application else ""
        made = SetWindow(
            name=name,
            effect=SetWindow.DENY if window.denies else SetWindow.ALLOW,
            start=f"{datetime.fromtimestamp(window.start, UTC):%Y-%m-%dT%H:%M:%S}",
            duration=Duration(seconds=int(window.end - window.start)),
            time_zone="UTC",
            application_id=about,
            labels={"env": window.label} if window.label else {},
        )
        self.ask(self.windows.SetWindow, rules.SetWindowRequest(window=made))

    def delete_window(self, name: str) -> None:
        self.ask(self.windows.DeleteWindow, rules.DeleteWindowRequest(name=name))

    def have_queues_looked_at(self) -> None:
        """A queue looks at its clock every half minute; a change of the rules is a reason, too."""
        now = self.clock.now()
        nobody = Window(start=now, end=now + 3600, denies=True, label=NOBODY)
        self.set_window(NOBODY, nobody, Reference(applications={}))
        self.delete_window(NOBODY)

    # What is to be seen.

    def look(self, known: Reference) -> Look:
        return self.run(self._look(known))

    async def _look(self, known: Reference) -> Look:
        ids = {each.id: each.name for each in known.applications.values()}
        client = self.client
        listed = external.ListDeploymentsRequest(application_ids=list(ids), limit=500)
        queue, controls, found, *applications = await asyncio.gather(
            _ask(client.deployments.ListQueue, own.ListQueueRequest()),
            _ask(client.applications.ListApplicationControls, own.ListApplicationControlsRequest()),
            _ask(client.api.ListDeployments, listed),
            *(
                _ask(client.api.GetApplication, external.GetApplicationRequest(application_id=each))
                for each in ids
            ),
        )
        deployments: dict[str, list[pb.Deployment]] = {name: [] for name in ids.values()}
        for each in found.deployments:
            deployments[ids[each.application_id]].append(each)
        return Look(
            at=self.clock.now(),
            deployments=deployments,
            queue={each.queued.deployment_id: each.queued for each in queue.items},
            controls={
                ids[each.application_id]: each
                for each in controls.controls
                if each.application_id in ids
            },
            sync_reasons={
                ids[each.application.id]: each.application.sync_state.reason
                for each in applications
            },
            effects=tuple(self._list_effects(deployments.values())),
        )

    def _list_effects(self, deployments: Iterable[list[pb.Deployment]]) -> Iterable[str]:
        ids = {each.id for found in deployments for each in found}
        for line in self.effects.read_text().splitlines():
            if line.partition(" ")[0] in ids:
                yield line


async def _ask(method: Any, request: Any) -> Any:
    return await call(method, request, retry=PATIENT)


def _make_script(effects: Path, step: str, after: str) -> dict[str, Any]:
    run = f'echo "$SR_DEPLOYMENT_ID {step}" >> {effects}{after}'
    undo = f'echo "$SR_DEPLOYMENT_ID undo-{step}" >> {effects}'
    return {"name": "SCRIPT_RUN", "timeout": LONG, "with": {"run": run, "onRollback": undo}}


class Worlds:
    """The world that sequences share, until one of them has failed there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._current: World | None = None

    def take(self) -> World:
        """Returns the world; makes one when there is none."""
        if self._current is None:
            self._count += 1
            folder = self._folder / str(self._count)
            folder.mkdir()
            self._current = World(folder)
        return self._current

    def close(self) -> None:
        """End its programs; its files stay."""
        current, self._current = self._current, None
        if current is not None:
            current.close()
