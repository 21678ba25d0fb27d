# SPDX-License-Identifier: Apache-2.0
"""Keeps a cluster running for the process that started it, and leaves nothing when that ends.

    python -m pipecd_test_support.kubernetes.keeper FOLDER

It makes everything in the folder, says on one line of its output that the cluster is ready (or why
it is not), and waits for the end of its input. However its starter ends, that end comes: then the
cluster's processes are killed and the folder is removed.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipecd_runtime import process
from pipecd_test_support.kubernetes.api import Api, RefusedError
from pipecd_test_support.kubernetes.cache import MissingError
from pipecd_test_support.kubernetes.certificates import make_certificates
from pipecd_test_support.kubernetes.definitions import list_definitions
from pipecd_test_support.kubernetes.executables import Executables, find_executables
from pipecd_test_support.kubernetes.kubeconfigs import write_kubeconfig
from pipecd_test_support.kubernetes.nodes import add_nodes
from pipecd_test_support.kubernetes.parts import (
    Places,
    list_api_server_flags,
    list_controller_flags,
    list_etcd_flags,
    list_kwok_flags,
    list_scheduler_flags,
)
from pipecd_test_support.kubernetes.stages import write_stages
from pipecd_test_support.kubernetes.tokens import write_tokens

START_SECONDS: Final = 90.0
"""How long a cluster may take to be ready, on the slowest machine."""
ATTEMPTS: Final = 3
"""Another program may take a port between the moment it is picked and that it is served on."""
LOOK_SECONDS: Final = 0.05


class PartError(Exception):
    """A cluster does not become ready; the message has what its parts said last."""


class EndedError(PartError):
    """A part ended."""


class Keeper:
    """The processes of one cluster."""

    def __init__(self, folder: Path, executables: Executables) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.places = Places(folder=folder, certificates=make_certificates(folder))
        self._executables = executables
        self._running: dict[str, process.Process] = {}

    async def start(self) -> None:
        """Start the parts in order. Raises PartError."""
        places, files = self.places, self.places.certificates
        admin = (files.admin, files.admin_key)
        places.stages.write_text(write_stages())
        write_tokens(places.tokens)
        write_kubeconfig(
            places.kubeconfig, server=places.server, authority=files.authority, certificate=admin
        )
        await self._start("etcd", list_etcd_flags(places))
        await self._start("kube-apiserver", list_api_server_flags(places))
        api = Api(places.server, authority=files.authority, certificate=admin)
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._wait_ready(api)
                await self._start("kube-controller-manager", list_controller_flags(places))
                await self._start("kube-scheduler", list_scheduler_flags(places))
                await asyncio.to_thread(_define_kinds, api)
                await self._start("kwok", list_kwok_flags(places))
                await asyncio.to_thread(add_nodes, api)
        except (TimeoutError, AssertionError, RefusedError, OSError) as error:
            raise PartError(f"the cluster does not become ready: {error}; {self._tell()}") from None
        finally:
            api.close()

    async def _start(self, part: str, flags: Sequence[str]) -> None:
        program = [process.word(self._executables.control_plane), *process.vouch_for([part])]
        if part == "kwok":
            program = [process.word(self._executables.kwok)]
        with self.places.find_log(part).open("wb") as log:
            self._running[part] = await process.start(
                [*program, *process.vouch_for(flags)],
                env={**os.environ, "HOME": str(self.places.folder)},
                cwd=self.places.folder,
                stdout=log,
                stderr=process.STDOUT,
            )

    async def _wait_ready(self, api: Api) -> None:
        while True:
            self._check()
            try:
                await asyncio.to_thread(api.read_text, "/readyz")
            except (RefusedError, OSError, *Api.CONNECTION_ERRORS):
                await asyncio.sleep(LOOK_SECONDS)
                continue
            return

    def _check(self) -> None:
        """Raise PartError when a part has ended."""
        ended = [part for part, running in self._running.items() if running.returncode is not None]
        if ended:
            raise EndedError(f"{', '.join(ended)} ended; {self._tell()}")

    def _tell(self) -> str:
        """Return the last line of each part."""
        lasts = {
            part: self.places.find_log(part).read_text(errors="replace").splitlines()[-1:]
            for part in self._running
        }
        return "; ".join(f"{part}: {lines[0][:400]}" for part, lines in lasts.items() if lines)

    async def close(self) -> None:
        """Kill the parts, the last one first, and remove what they wrote."""
        for running in reversed(self._running.values()):
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
        for running in self._running.values():
            await running.wait()
        shutil.rmtree(self.places.folder, ignore_errors=True)


def _define_kinds(api: Api) -> None:
    """Create the definitions of further kinds, and wait until the API server serves them."""
    definitions = list_definitions()
    for each in definitions:
        api.create(each)
    for each in definitions:
        api.wait(
            each["apiVersion"],
            each["kind"],
            each["metadata"]["name"],
            is_right=lambda found: any(
                condition["type"] == "Established" and condition["status"] == "True"
                for condition in (found or {}).get("status", {}).get("conditions", ())
            ),
        )


async def _keep(folder: Path) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    ended = asyncio.create_task(_wait_input_end(stopping))
    starting = asyncio.create_task(_start_any(folder))
    await asyncio.wait({starting, ended}, return_when=asyncio.FIRST_COMPLETED)
    keeper: Keeper | None = None
    try:
        if not starting.done():
            starting.cancel()
        with suppress(asyncio.CancelledError):
            keeper = await starting
            _say({"server": keeper.places.server, "kubelet_port": keeper.places.kubelet_port})
        await ended
    except (PartError, MissingError, OSError) as error:
        _say({"error": str(error)})
    finally:
        ended.cancel()
        if keeper is not None:
            await keeper.close()


async def _start_any(folder: Path) -> Keeper:
    """Start a cluster, with other ports when a part ends at once."""
    executables = find_executables()
    for attempt in range(1, ATTEMPTS + 1):
        keeper = Keeper(folder, executables)
        try:
            await keeper.start()
        except BaseException as error:
            await keeper.close()
            if not isinstance(error, EndedError) or attempt == ATTEMPTS:
                raise
        else:
            return keeper
    raise PartError("the cluster does not start")  # not reached: the last attempt raises


async def _wait_input_end(stopping: asyncio.Event) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    reading = asyncio.create_task(reader.read())
    told = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({reading, told}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        reading.cancel()
        told.cancel()


def _say(facts: dict[str, object]) -> None:
    with suppress(BrokenPipeError):  # its starter has ended
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_keep(Path(sys.argv[1])))
