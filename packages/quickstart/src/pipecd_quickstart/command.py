# SPDX-License-Identifier: Apache-2.0
"""The command line of the quickstart, and what it does when a person presses Ctrl-C."""

import asyncio
import signal
import tempfile
from pathlib import Path

import click

from pipecd_quickstart.check import check
from pipecd_quickstart.folder import QuickstartFolder
from pipecd_quickstart.narrate import Narrator, say
from pipecd_quickstart.processes import RunningProgram
from pipecd_quickstart.session import QuickstartSession, open_session


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Where everything is kept. Default: ./pipecd-quickstart; for --check a temporary folder.",
)
@click.option("--clean", is_flag=True, help="Remove what a former quickstart left, and end.")
@click.option("--check", "check_it", is_flag=True, help="Walk the journey by itself; exit 0 or 1.")
def quickstart(*, data_dir: Path | None, clean: bool, check_it: bool) -> None:
    """Start control plane, piped and plugins here, and make a first deployment.

    Ctrl-C stops everything; running scripts are waited for, and a second Ctrl-C ends them. A second
    start goes on with what is there.
    """
    if clean:
        folder = QuickstartFolder(data_dir or Path("pipecd-quickstart"))
        folder.clean()
        click.echo(f"removed {folder.root}")
    elif check_it and data_dir is not None:
        raise click.exceptions.Exit(0 if asyncio.run(_check(QuickstartFolder(data_dir))) else 1)
    elif check_it:
        with tempfile.TemporaryDirectory(prefix="pipecd-quickstart-") as temporary:
            good = asyncio.run(_check(QuickstartFolder(Path(temporary) / "data")))
        raise click.exceptions.Exit(0 if good else 1)
    else:
        asyncio.run(_run(QuickstartFolder(data_dir or Path("pipecd-quickstart"))))


async def _check(folder: QuickstartFolder) -> bool:
    if folder.root.exists() and not folder.is_new:
        raise click.UsageError("--check needs a fresh folder: run with --clean first")
    async with open_session(folder) as running:
        return await check(running)


async def _run(folder: QuickstartFolder) -> None:
    say("starting the control plane, piped and its plugins …")
    async with open_session(folder) as running:
        say(f"control plane http://{running.address}, data in {folder.root}", colour="green")
        narrator = Narrator(running)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _request_stop, running, stop)
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(narrator.run())
            suggesting = tasks.create_task(_suggest(running, narrator))
            watching = [
                tasks.create_task(_notice_death(program, stop))
                for program in (running.server, running.piped)
            ]
            await stop.wait()
            await running.piped.wait()
            for task in (telling, suggesting, *watching):
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
    """Prints what to try next, once a deployment waits for approval."""
    deployment = await narrator.waits_for_approval()
    folder = running.folder
    repository = folder.repository
    website = running.applications.get("website", "ID")
    click.echo(
        f"""
What to try next, in another terminal:
  approve it  {folder.pipectl} deployment approve --deployment-id {deployment}
  change it   echo again > {repository}/hello/message.txt && git -C {repository} commit -am change
  break it    echo 'exit 1' >> {repository}/hello/publish.sh && git -C {repository} commit -am break
  see it run  {folder.pipectl} application get --live --app-id {website}
  let it drift  echo hand-made > {folder.site("east")}/current/index.html
              {folder.pipectl} application diff --app-id {website}
"""
    )


async def _notice_death(program: RunningProgram, stop: asyncio.Event) -> None:
    """Raises ProgramEndedError, with the end of its log, when a program ends by itself."""
    await program.wait()
    if not stop.is_set():
        raise program.failure()
