# SPDX-License-Identifier: Apache-2.0
"""Supervises one plugin: fetches and starts it, waits until it serves, watches and restarts it.

A process is given up when it exits, does not serve in time, misses its pings, or cannot be reached
any more. The backoff before the next one grows with each failure, and is reset once a process has
been ready for a while. After `stop` only the exit of the process counts: a plugin that stops may
close its port long before it is done.
"""

import asyncio
import os
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipecd_model.config import PluginConfig
from pipecd_piped.plugins.backend import PluginBackend
from pipecd_piped.plugins.command import command_of
from pipecd_piped.plugins.connection import PluginConnection
from pipecd_piped.plugins.errors import PluginError
from pipecd_piped.plugins.management import (
    ManagementApi,
    PluginSession,
    authenticator_of,
    endpoints_of,
)
from pipecd_piped.plugins.plugin import Plugin
from pipecd_piped.plugins.state import Phase, PluginLimits
from pipecd_piped.programs.download import DownloadLimits
from pipecd_piped.programs.errors import ProgramError, SourceAwayError
from pipecd_piped.programs.fetch import FetchedProgram
from pipecd_piped.programs.fetcher import ProgramFetcher
from pipecd_piped.programs.orphans import OrphanReaper
from pipecd_piped.programs.port import accepts, private_port
from pipecd_piped.programs.process import ProgramProcess, describe_exit, running_process
from pipecd_piped.programs.source import ProgramSource
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger
from pipecd_runtime.orphans import Leader, Search, new_mark, start_of
from pipecd_runtime.peer import PeerError, check_listeners
from pipecd_runtime.ports import is_free, pick_port
from pipecd_wire.headers import PIPED_TOKEN_HEADER
from pipecd_wire.pipecd.plugin.plugin_pb2 import ReadyRequest
from pipecd_wire.plugin.deploymentapi.api_pb2 import FetchDefinedStagesRequest
from pipecd_wire.rpc import (
    AddressError,
    CallError,
    Channel,
    Endpoints,
    Retry,
    call,
    connect,
    wait_until_ready,
)

log = logger(__name__)

LAST_OUTPUT_SECONDS: Final = 0.5
"""Seconds in which the last output of a process that has ended is read."""

KILL_SECONDS: Final = 5.0
"""Seconds to wait for the end of a process that was killed."""

POLL_PORT_SECONDS: Final = 0.05
"""Seconds between two checks whether a plugin accepts connections on its port."""

FIRST_ANSWER: Final = Retry(attempts=None, base_seconds=0.05, cap_seconds=0.5)


class ProcessLostError(Exception):
    """A process is given up; the message says why."""


class RestartRequestedError(ProcessLostError):
    """A user has asked for a restart: nothing has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostContext:
    """What the supervisors of all plugins share."""

    folder: Path
    orphans: OrphanReaper
    names: frozenset[str]
    """The names of all plugins."""
    backend: PluginBackend
    limits: PluginLimits
    wrapper: tuple[str, ...]
    """The prefix of the command of an executable file, see `pdeathsig_wrapper`."""
    grace_seconds: float
    """The time in seconds that a plugin has to stop."""
    download: DownloadLimits


def source_of(plugin: PluginConfig) -> ProgramSource:
    """Returns the source of a plugin's program, from its configuration."""
    return ProgramSource(
        name=plugin.name, url=plugin.url, sha256=plugin.sha256, insecure=plugin.insecure
    )


class Supervisor:
    """Runs the processes of one plugin, one at a time."""

    def __init__(self, config: PluginConfig, plugin: Plugin, context: HostContext) -> None:
        self._config = config
        self._plugin = plugin
        self._context = context
        self._limits = context.limits
        self._process: ProgramProcess | None = None
        self._connection: PluginConnection | None = None
        self._stop = asyncio.Event()
        self._restart_requested = asyncio.Event()
        self._requested_by = ""
        self._pause = 0.0
        self._backoff = Backoff(
            first_seconds=self._limits.first_pause_seconds,
            longest_seconds=self._limits.longest_pause_seconds,
        )
        self._fetcher = ProgramFetcher(
            source_of(config), context.folder, context.download, self._show_fetching
        )

    @property
    def name(self) -> str:
        return self._plugin.name

    async def run(self) -> None:
        """Run the plugin, and restart it with backoff, until `stop`."""
        while not self._stop.is_set():
            try:
                await self._run_process()
            except SourceAwayError as error:
                self._wait_for_source(error.with_hint())
            except (PluginError, ProgramError) as error:
                self._fail(error.with_hint())
            except AddressError as error:
                self._fail(str(error))
            except Exception:  # noqa: BLE001 - a bug here must not end piped, nor leave a plugin dead
                log.bug("plugin.bug", plugin=self._plugin.name)
                self._fail("piped has a bug; its log has the details")
            await self._wait_backoff()
        self._plugin.become(Phase.STOPPING, "has stopped")

    def stop(self) -> None:
        """Signal the process to stop, and start no other; called again, signal it to stop at once.

        A process that is not managed and runs a stage gets the signal when the stage has ended.
        """
        if not self._stop.is_set():
            self._stop.set()
            self._fetcher.stop()
            self._plugin.become(Phase.STOPPING, "was told to stop")
            if self._may_finish_stages():
                return
        self.signal_stop()

    def signal_stop(self) -> None:
        """Send the process the signal to stop, even if it runs a stage."""
        if self._connection is not None:
            self._connection.is_stopping = True
        if self._process is not None:
            self._process.terminate()

    @property
    def is_signalled(self) -> bool:
        """Returns whether the process has got the signal to stop, or serves no calls."""
        return self._connection is None or self._connection.is_stopping

    def _may_finish_stages(self) -> bool:
        """Returns whether the signal to stop is delayed until the running stages have ended.

        A plugin that is not managed cannot return an unfinished stage: after the signal the result
        of the stage would be lost.
        """
        there = self._connection
        return there is not None and not there.is_managed and not self._plugin.running.is_idle

    def restart(self, by: str) -> None:
        """Request a new process instead of the current one, without waiting for the backoff."""
        log.info("plugin.restart_wanted", plugin=self._plugin.name, by=by)
        self._requested_by = by
        self._plugin.failures = 0
        self._restart_requested.set()

    def kill(self) -> None:
        """Kill the current process, if there is one."""
        if self._process is not None:
            self._process.kill()

    def _fail(self, why: str, *, wanted: bool = False) -> None:
        """End all calls to the process, and set the backoff before the next process.

        No failure is counted when the restart was `wanted`.
        """
        plugin = self._plugin
        plugin.set_connection(None)
        if wanted:
            self._pause = 0.0
        elif not self._stop.is_set():
            plugin.failures, plugin.failure = plugin.failures + 1, why
            self._pause = self._backoff.pause_seconds_after(plugin.failures)
            plugin.become(Phase.FAILED, f"{why}; next try in {self._pause:.1f}s")
        if self._connection is not None:
            self._connection.end_reason = why
            self._connection.calls.end()
            self._connection = None

    def _wait_for_source(self, why: str) -> None:
        """Set the backoff before the next download. The plugin itself has not failed."""
        self._pause = self._backoff.pause_seconds_after(self._fetcher.failures)
        if not self._stop.is_set():
            self._plugin.become(Phase.FAILED, f"{why}; next try in {self._pause:.1f}s")

    async def _wait_backoff(self) -> None:
        """Wait for the backoff, a stop or a request to restart, whichever comes first."""
        async with asyncio.TaskGroup() as waits:
            requests = [
                waits.create_task(each.wait()) for each in (self._stop, self._restart_requested)
            ]
            await asyncio.wait(requests, timeout=self._pause, return_when=asyncio.FIRST_COMPLETED)
            for request in requests:
                request.cancel()

    async def _run_process(self) -> None:
        """Run one process from its start to its end."""
        refresh = self._restart_requested.is_set()
        self._restart_requested.clear()
        program = await self._fetcher.fetch(refresh=refresh)
        self._restart_requested.clear()  # this process also serves the requests that came meanwhile
        if program is None:
            return
        await self._end_orphans()
        port = self._port_for(program)
        session = PluginSession(
            token=secrets.token_urlsafe(32), piped_token=secrets.token_urlsafe(32), port=port
        )
        async with AsyncExitStack() as opened:
            service_port = await opened.enter_async_context(
                private_port(self._endpoints(session), authenticator_of(self._config.name, session))
            )
            if self._stop.is_set():
                return
            self._plugin.become(Phase.STARTING, f"has {self._limits.ready_seconds:g}s to serve")
            mark = new_mark(self._context.folder.parent, self._plugin.name)
            command = command_of(
                self._config,
                program,
                service_port=service_port,
                port=port,
                token=session.token,
                mark=mark,
                piped_token=session.piped_token,
                scripts=(self._context.folder.parent / "scripts").absolute(),
                grace_seconds=self._context.grace_seconds,
                wrapper=self._context.wrapper,
            )
            process = await opened.enter_async_context(running_process(command, self._record))
            self._process = process
            leader = Leader(pid=process.pid, started=start_of(process.pid))
            processes = Search(leaders=(leader,), is_wanted=lambda it: it == mark)
            if self._stop.is_set():
                process.terminate()
            await self._follow_process(process, session, processes, opened)

    async def _follow_process(
        self,
        process: ProgramProcess,
        session: PluginSession,
        processes: Search,
        opened: AsyncExitStack,
    ) -> None:
        """Use a started process until it is lost or to be replaced, and end all that it started."""
        why, wanted = "piped is ending", False
        try:
            async with asyncio.TaskGroup() as watches:
                watches.create_task(self._watch_process(process, watches))
                watches.create_task(self._watch_restart_requests())
                watches.create_task(self._watch_stages())
                watches.create_task(self._serve(session, processes, opened, watches))
        except* RestartRequestedError as request:
            why, wanted = str(request.exceptions[0]), True
            await self._drain(process, why)
        except* ProcessLostError as gone:
            why = str(gone.exceptions[0])
        finally:
            session.given_up = True
            self._plugin.set_connection(None)
            try:
                # Before any call ends: neither the process nor its children may work on a
                # stage that the next process continues.
                if self._connection is not None:
                    self._connection.is_ending = True
                await process.kill_and_wait(KILL_SECONDS)
                await self._end_orphans()
            except (PluginError, ProgramError) as error:
                why = f"{why}; {error}"
            finally:
                self._process = None
                self._fail(why, wanted=wanted)

    def _show_fetching(self, how: str) -> None:
        if not self._stop.is_set():
            self._plugin.become(Phase.FETCHING, how)

    async def _drain(self, process: ProgramProcess, why: str) -> None:
        """Stop a healthy process: it returns its unfinished stages before it is killed."""
        self._plugin.set_connection(None)
        self._plugin.become(Phase.FETCHING, why)
        if self._connection is not None:
            self._connection.is_stopping = True
        process.terminate()
        await process.wait_ended(self._limits.hurry_seconds)

    def _record(self, pid: int) -> None:
        self._context.orphans.record(self._plugin.name, pid)

    async def _end_orphans(self) -> None:
        """End all that earlier processes have started. Raises ProgramError when that fails."""
        name = self._plugin.name
        await self._context.orphans.end(name, others=self._context.names - {name})

    def _endpoints(self, session: PluginSession) -> Endpoints:
        management = ManagementApi(
            session,
            ping_interval_seconds=self._limits.ping_interval_seconds,
            running=self._plugin.running,
            backend=self._context.backend,
            plugin=self._config.name,
        )
        return endpoints_of(self._config.name, session, management, self._context.backend)

    def _port_for(self, program: FetchedProgram) -> int:
        """Returns the port for the plugin to serve on; 0 for a package, which chooses one.

        Raises PluginError when the configured port is taken.
        """
        if program.is_package:
            return 0
        if not self._config.port:
            try:
                return pick_port()
            except OSError as error:
                raise PluginError("no free port was found for it") from error
        if not is_free(self._config.port):
            # The plugin could not listen there, and piped would talk to the other process.
            raise PluginError(
                f"the port {self._config.port} is taken by another process",
                hint="end it, or name another `port`",
            )
        return self._config.port

    async def _watch_process(self, process: ProgramProcess, watches: asyncio.TaskGroup) -> None:
        following = watches.create_task(self._plugin.output.follow(process.output))
        code = await process.wait()
        await asyncio.wait({following}, timeout=LAST_OUTPUT_SECONDS)
        when = "" if self._connection is not None else " before it was ready"
        raise ProcessLostError(f"{describe_exit(code)}{when}")

    async def _serve(
        self,
        session: PluginSession,
        processes: Search,
        opened: AsyncExitStack,
        watches: asyncio.TaskGroup,
    ) -> None:
        limit = self._limits.ready_seconds
        try:
            async with asyncio.timeout(limit):
                proof = ((PIPED_TOKEN_HEADER, session.piped_token),)
                channel = await opened.enter_async_context(
                    connect(await self._address(session), metadata=lambda: proof)
                )
                connection = PluginConnection(self._plugin.name, channel, self._limits, processes)
                stages = await self._fetch_stages(connection)
        except TimeoutError:
            raise ProcessLostError(f"did not serve within {limit:g}s") from None
        except CallError as error:
            raise ProcessLostError(f"failed at FetchDefinedStages: {error}") from None
        if self._stop.is_set():
            return
        self._connection = connection
        self._plugin.stages = stages
        if session.ready.done():
            self._apply_ready(session.ready.result(), connection)
        self._plugin.set_connection(connection)
        self._plugin.become(Phase.READY, f"serves {', '.join(sorted(stages)) or 'no stages'}")
        watches.create_task(self._watch_pings(session, connection))
        watches.create_task(self._watch_channel(session, channel, connection))
        watches.create_task(self._watch_answers(connection))
        watches.create_task(self._watch_callers(connection))
        watches.create_task(self._watch_steadiness())

    async def _address(self, session: PluginSession) -> str:
        """Wait until the plugin serves; returns its address."""
        if not session.port:
            return f"127.0.0.1:{(await asyncio.shield(session.ready)).port}"
        while not session.ready.done() and not await accepts(session.port):
            await asyncio.wait({session.ready}, timeout=POLL_PORT_SECONDS)
        await self._check_listeners(session)
        return f"localhost:{session.port}"

    async def _check_listeners(self, session: PluginSession) -> None:
        """Raises ProcessLostError when a process of another user listens on the plugin's port.

        It could have taken the port before the plugin, or after it, and must get no call. The port
        that a package has chosen needs no check: the package has reported it itself.
        """
        if not session.port:
            return
        try:
            await asyncio.to_thread(
                check_listeners, ("127.0.0.1", "::1"), session.port, uid=os.geteuid()
            )
        except PeerError as error:
            if self._stop.is_set():
                return  # the plugin may have closed its port, which is then free for others
            raise ProcessLostError(f"does not serve alone: {error}") from None

    async def _fetch_stages(self, connection: PluginConnection) -> frozenset[str]:
        try:
            answer = await call(
                connection.deployment.FetchDefinedStages,
                FetchDefinedStagesRequest(),
                deadline=self._limits.ready_seconds,
                retry=FIRST_ANSWER,
            )
        except CallError as error:
            if error.status == "UNIMPLEMENTED":  # it offers only live state or plan previews
                return frozenset()
            raise
        return frozenset(answer.stages)

    def _apply_ready(self, ready: ReadyRequest, connection: PluginConnection) -> None:
        """Apply what the plugin has sent in Ready: it is managed from now on."""
        connection.is_managed = True
        self._plugin.version = ready.version
        self._plugin.stages_without_files = frozenset(ready.stages_without_files)

    async def _watch_pings(self, session: PluginSession, connection: PluginConnection) -> None:
        if not session.ready.done():
            # It served before it sent Ready; a plugin of upstream's never sends it.
            self._apply_ready(await asyncio.shield(session.ready), connection)
        clock = asyncio.get_running_loop().time
        interval, missed = self._limits.ping_interval_seconds, self._limits.missed_pings
        while not self._stop.is_set():
            due = session.last_ping + missed * interval
            if clock() < due:
                await asyncio.sleep(due - clock())
                if clock() > due + interval:
                    session.mark_alive()  # piped itself was suspended: pings could not arrive
            else:
                raise ProcessLostError(f"missed {missed} pings in a row")

    async def _watch_channel(
        self, session: PluginSession, channel: Channel, connection: PluginConnection
    ) -> None:
        while not self._stop.is_set():
            state = channel.get_state(try_to_connect=True)
            if state.name == "READY":
                await channel.wait_for_state_change(state)
                continue
            try:
                await wait_until_ready(channel, limit=self._limits.reconnect_seconds)
                await self._check_listeners(session)
            except CallError:
                # While a call still runs on the old connection, the plugin may be stopping.
                if not connection.calls.is_busy and not self._stop.is_set():
                    raise ProcessLostError("cannot be reached any more") from None

    async def _watch_answers(self, connection: PluginConnection) -> None:
        """Probe with a call that every plugin implements: a process may send pings and not serve.

        Raises ProcessLostError after several timeouts in a row.
        """
        question, unanswered = self._limits.probe_interval_seconds, 0
        while not self._stop.is_set():
            await asyncio.sleep(question)
            try:
                await call(
                    connection.deployment.FetchDefinedStages,
                    FetchDefinedStagesRequest(),
                    deadline=question,
                )
            except CallError as error:
                if error.status == "DEADLINE_EXCEEDED":
                    unanswered += 1
                elif error.status != "UNAVAILABLE":  # an answer: not every plugin has stages
                    unanswered = 0
            else:
                unanswered = 0
            if unanswered >= self._limits.missed_pings and not self._stop.is_set():
                raise ProcessLostError(f"did not answer {unanswered} questions in a row")

    async def _watch_restart_requests(self) -> None:
        await self._restart_requested.wait()
        if not self._stop.is_set():
            raise RestartRequestedError(f"was restarted by {self._requested_by}")

    async def _watch_stages(self) -> None:
        """After `stop`, signal a process that may finish its stages once the last has ended."""
        await self._stop.wait()
        await self._plugin.running.wait_idle()
        if not self.is_signalled:
            self.signal_stop()

    async def _watch_callers(self, connection: PluginConnection) -> None:
        why = await connection.unrecoverable
        if not self._stop.is_set():
            raise ProcessLostError(why)

    async def _watch_steadiness(self) -> None:
        await asyncio.sleep(self._limits.steady_seconds)
        self._plugin.failures = 0
