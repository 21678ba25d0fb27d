# SPDX-License-Identifier: Apache-2.0
"""The command line of the quickstart, and what it does when a person presses Ctrl-C."""

import asyncio
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from pipecd_model.errors import StateError
from pipecd_quickstart.check import check
from pipecd_quickstart.console import build_console
from pipecd_quickstart.disk import check_space, explaining_disk, watch_space
from pipecd_quickstart.folder import QuickstartFolder
from pipecd_quickstart.keys import LINK, watch_keys
from pipecd_quickstart.links import describe_link, make_link
from pipecd_quickstart.narrate import Narrator
from pipecd_quickstart.printing import say
from pipecd_quickstart.processes import RunningProgram
from pipecd_quickstart.session import QuickstartSession, connect_to, open_session
from pipecd_quickstart.suggestions import choose_suggestions, format_suggestions, is_open
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.rpc import call

DEFAULT_FOLDER: Final = Path("pipecd-quickstart")


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=None,
    help="Where everything is kept. Default: ./pipecd-quickstart; for --check a temporary folder.",
)
@click.option("--next", "show_next", is_flag=True, help="Show again what to try next, and end.")
@click.option(
    "--link", "show_link", is_flag=True, help="Print a link that signs a browser in, and end."
)
@click.option(
    "--build-console",
    "builder",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
    hidden=True,
    help="A Python program that builds the console, run once the first deployment is shown.",
)
@click.option("--clean", is_flag=True, help="Remove what a former quickstart left, and end.")
@click.option("--check", "check_it", is_flag=True, help="Walk the journey by itself; exit 0 or 1.")
def quickstart(
    *,
    data_dir: Path | None,
    show_next: bool,
    show_link: bool,
    builder: Path | None,
    clean: bool,
    check_it: bool,
) -> None:
    """Start control plane, piped and plugins here, and make a first deployment.

    While it runs, h shows what to try next, and l a link to the console that signs you in. Ctrl-C
    stops everything; running scripts are waited for, and a second Ctrl-C ends them. A second start
    goes on with what is there.
    """
    if show_next + show_link + clean + check_it > 1:
        raise click.UsageError("--next, --link, --clean and --check exclude each other")
    if check_it and data_dir is None:
        with tempfile.TemporaryDirectory(prefix="pipecd-quickstart-") as temporary:
            good = _check(QuickstartFolder(Path(temporary) / "data"))
        raise click.exceptions.Exit(0 if good else 1)
    folder = QuickstartFolder(data_dir or DEFAULT_FOLDER)
    if check_it:
        raise click.exceptions.Exit(0 if _check(folder) else 1)
    with explaining_disk(folder.root):
        if clean:
            folder.clean()
            click.echo(f"removed {folder.root}")
        elif show_next:
            click.echo(asyncio.run(_show_next(folder)))
        elif show_link:
            _require_running(folder)
            click.echo(asyncio.run(make_link(folder)))
        else:
            with folder.locked():
                asyncio.run(_run(folder, builder))


def _check(folder: QuickstartFolder) -> bool:
    if not folder.is_new:
        raise StateError("--check needs a fresh folder", hint="run with --clean first")

    async def walk() -> bool:
        async with open_session(folder) as running:
            return await check(running)

    with explaining_disk(folder.root), folder.locked():
        check_space(folder.root)
        return asyncio.run(walk())


async def _show_next(folder: QuickstartFolder) -> str:
    """Returns what works now in the quickstart of a folder. Raises StateError if it is stopped."""
    _require_running(folder)
    start = _command_line(folder)
    memory = folder.recall()
    async with connect_to(folder, f"127.0.0.1:{memory.port}") as channel:
        request = pb.ListDeploymentsRequest(limit=50)
        answer = await call(APIServiceStub(channel).ListDeployments, request)
    return _suggestions(
        folder, list(answer.deployments), again=f"To see this again: {start} --next"
    )


def _require_running(folder: QuickstartFolder) -> None:
    """Raises StateError or NotFoundError when there is no running quickstart in the folder."""
    folder.require()
    if not folder.is_running():
        raise StateError(
            f"the quickstart in {str(folder.root)!r} is stopped",
            hint=f"start it with `{_command_line(folder)}`",
        )


async def _run(folder: QuickstartFolder, builder: Path | None) -> None:
    check_space(folder.root)
    say("starting the control plane")
    async with open_session(folder) as running:
        say(f"control plane http://{running.address}, data in {folder.root}", colour="green")
        narrator = Narrator(running)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _request_stop, running, stop)
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(narrator.run()),
                tasks.create_task(_suggest(running, narrator)),
                tasks.create_task(_build_console(running, narrator, builder)),
                tasks.create_task(watch_space(folder.root)),
                *(
                    tasks.create_task(_notice_death(program, stop))
                    for program in (running.server, running.piped)
                ),
            ]
            await stop.wait()
            await running.piped.wait()
            for task in background:
                task.cancel()
        say("stopped; start again and everything goes on")


def _request_stop(running: QuickstartSession, stop: asyncio.Event) -> None:
    """Stops piped. The first request lets scripts finish, a second one ends them.

    Piped gets the same signal both times.
    """
    if stop.is_set():
        say("ending running scripts …", colour="yellow")
    else:
        say("stopping; running scripts are waited for (Ctrl-C again ends them) …", colour="yellow")
    stop.set()
    running.piped.signal(signal.SIGTERM)


async def _suggest(running: QuickstartSession, narrator: Narrator) -> None:
    """Prints what to try next: once nothing goes on by itself, and whenever a person asks."""
    folder = running.folder
    pressed: asyncio.Queue[str] = asyncio.Queue()
    async with watch_keys(pressed) as has_keys:
        command = _command_line(folder)
        again = "Press h to see this again. Ctrl-C stops everything."
        again = again if has_keys else f"To see this again: {command} --next"
        link_again = "press l." if has_keys else f"{command} --link"
        await narrator.wait_settled()
        wanted = ""
        while True:
            if wanted != LINK:
                click.echo(_suggestions(folder, narrator.open_deployments, again=again))
            if wanted in {"", LINK}:
                click.echo(await describe_link(folder, again=link_again))
            wanted = await pressed.get()


async def _build_console(
    running: QuickstartSession, narrator: Narrator, builder: Path | None
) -> None:
    """Builds the console once nothing goes on by itself; nothing waits for it."""
    await narrator.wait_settled()
    if builder is not None:
        await build_console(builder, running.folder, f"http://{running.address}")


def _suggestions(folder: QuickstartFolder, deployments: list[Deployment], *, again: str) -> str:
    is_waiting = any(each.application_name == "hello" and is_open(each) for each in deployments)
    suggestions = choose_suggestions(folder, is_waiting=is_waiting)
    return format_suggestions(folder, suggestions, again=again)


def _command_line(folder: QuickstartFolder) -> str:
    """Returns what to type for this quickstart, with the `pipecd` that runs now."""
    this = sys.argv[0]
    name = "pipecd" if shutil.which("pipecd") == this else this
    return f"{shlex.quote(name)} quickstart --data-dir {shlex.quote(str(folder.root))}"


async def _notice_death(program: RunningProgram, stop: asyncio.Event) -> None:
    """Raises ProgramEndedError, with the end of its log, when a program ends by itself."""
    await program.wait()
    if not stop.is_set():
        raise program.failure()
