# SPDX-License-Identifier: Apache-2.0
"""`pipectl init`: writes an application file, by questions or by flags. Needs no server."""

import sys
from pathlib import Path
from typing import Final

import click

from pipecd_model.errors import ConfigError, ConflictError
from pipecd_pipectl.appfile import (
    PLATFORMS,
    SCRIPT,
    ApplicationChoices,
    ScriptChoice,
    format_application,
    has_quick_sync,
)
from pipecd_pipectl.documents import is_application_file
from pipecd_pipectl.options import DURATION
from pipecd_pipectl.output import echo
from pipecd_runtime.files import write_atomically

FILE_NAME: Final = "app.pipecd.yaml"
QUICK, PIPELINE = "quick", "pipeline"


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--plugin",
    type=click.Choice(list(PLATFORMS)),
    help=f"What deploys it; {SCRIPT}: your own commands alone.",
)
@click.option("--name", help="The application's name; the folder's if not given.")
@click.option(
    "--sync",
    type=click.Choice([QUICK, PIPELINE]),
    help="quick: everything at once; pipeline: step by step.",
)
@click.option("--script", "scripts", multiple=True, help="A command to run; may be repeated.")
@click.option(
    "--on-rollback",
    "rollbacks",
    multiple=True,
    help="What undoes the script of the same number; may be repeated.",
)
@click.option("--wait", help="Hold the pipeline for so long, e.g. 5m.")
@click.option("--approval", "needs_approval", is_flag=True, help="Wait until somebody approves.")
@click.option("--approver", "approvers", multiple=True, help="Who may approve; may be repeated.")
@click.option("--force", is_flag=True, help="Overwrite the file if there is one.")
@click.option("--dry-run", is_flag=True, help="Print the file, and write nothing.")
def init(
    *,
    path: Path,
    plugin: str | None,
    name: str | None,
    sync: str | None,
    scripts: tuple[str, ...],
    rollbacks: tuple[str, ...],
    wait: str | None,
    needs_approval: bool,
    approvers: tuple[str, ...],
    force: bool,
    dry_run: bool,
) -> None:
    """Write an application's file, by questions or flags.

    PATH is the application's folder, or the file itself. On a terminal it asks for what no flag
    says. An existing file is kept unless --force is given.

    \b
    Examples:
      pipectl init
      pipectl init shop --plugin kubernetes --sync pipeline --approval
      pipectl init --plugin script --script ./deploy.sh --on-rollback ./undo.sh
    """
    file = _find_file(path)
    if file.exists() and not (force or dry_run):
        raise _refusal(file)
    name = name or file.absolute().parent.name or "application"
    if plugin is not None:
        given = ApplicationChoices(
            plugin=plugin,
            name=name,
            is_pipeline=sync == PIPELINE,
            scripts=_pair(scripts, rollbacks),
            wait=wait or "",
            needs_approval=needs_approval or bool(approvers),
            approvers=approvers,
        )
        choices = _choose(given, sync=sync)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        choices = _ask(name)
    else:
        raise click.UsageError("no plugin given: set --plugin, or run it on a terminal to be asked")
    text = format_application(choices)
    _check(text, file)
    if dry_run:
        echo(text, nl=False)
        return
    _write(file, text, force=force)
    _tell_next(file, choices)


def _find_file(path: Path) -> Path:
    if path.is_dir() or not path.name.endswith((".yaml", ".yml")):
        return path / FILE_NAME
    if not is_application_file(path):
        raise click.UsageError(
            f"{path.name!r} is not the name of an application file: it must end with .pipecd.yaml"
        )
    return path


def _refusal(file: Path) -> ConflictError:
    return ConflictError(f"{str(file)!r} is there already", hint="overwrite it with --force")


def _pair(scripts: tuple[str, ...], rollbacks: tuple[str, ...]) -> tuple[ScriptChoice, ...]:
    if len(rollbacks) > len(scripts):
        raise click.UsageError("there are more --on-rollback than --script")
    undone = (*rollbacks, *[""] * (len(scripts) - len(rollbacks)))
    return tuple(
        ScriptChoice(run=run, on_rollback=undo) for run, undo in zip(scripts, undone, strict=True)
    )


def _choose(given: ApplicationChoices, *, sync: str | None) -> ApplicationChoices:
    """Fills in what follows from the flags, and refuses what contradicts itself."""
    if given.wait:
        DURATION.convert(given.wait, None, None)
    needs_pipeline = bool(given.scripts or given.wait or given.needs_approval)
    if not has_quick_sync(given.plugin):
        if sync == QUICK:
            raise click.UsageError(
                f"--plugin {given.plugin} has no quick sync: use --sync pipeline"
            )
        if not given.scripts:
            raise click.UsageError(f"--plugin {given.plugin} needs at least one --script")
        needs_pipeline = True
    elif sync == QUICK and needs_pipeline:
        raise click.UsageError("--script, --wait and --approval need --sync pipeline")
    return ApplicationChoices(
        plugin=given.plugin,
        name=given.name,
        is_pipeline=given.is_pipeline or needs_pipeline,
        scripts=given.scripts,
        wait=given.wait,
        needs_approval=given.needs_approval,
        approvers=given.approvers,
    )


def _ask(default_name: str) -> ApplicationChoices:
    echo("What deploys the application?")
    for name, platform in PLATFORMS.items():
        echo(f"  {name.ljust(max(map(len, PLATFORMS)))}  {platform.summary}")
    plugin = click.prompt("Plugin", type=click.Choice(list(PLATFORMS)), default=SCRIPT)
    name = click.prompt("Name of the application", default=default_name)
    is_pipeline = not has_quick_sync(plugin) or (
        click.prompt(
            "All at once (quick), or step by step (pipeline)",
            type=click.Choice([QUICK, PIPELINE]),
            default=QUICK,
        )
        == PIPELINE
    )
    if not is_pipeline:
        return ApplicationChoices(plugin=plugin, name=name, is_pipeline=False)
    scripts = _ask_for_scripts(is_needed=plugin == SCRIPT)
    needs_approval = click.confirm("Shall it wait until somebody approves?", default=False)
    names = ""
    if needs_approval:
        names = click.prompt("Who may approve (names with commas; empty: everybody)", default="")
    return ApplicationChoices(
        plugin=plugin,
        name=name,
        is_pipeline=True,
        scripts=scripts,
        needs_approval=needs_approval,
        approvers=tuple(each.strip() for each in names.split(",") if each.strip()),
    )


def _ask_for_scripts(*, is_needed: bool) -> tuple[ScriptChoice, ...]:
    scripts: list[ScriptChoice] = []
    while True:
        question = "Another command to run" if scripts else "A command to run"
        run = click.prompt(f"{question} (empty: none)", default="", show_default=False).strip()
        if run:
            undo = click.prompt("What undoes it (empty: nothing)", default="", show_default=False)
            scripts.append(ScriptChoice(run=run, on_rollback=undo.strip()))
        elif scripts or not is_needed:
            return tuple(scripts)
        else:
            echo("an application of scripts needs at least one")


def _check(text: str, file: Path) -> None:
    """Refuses choices that do not make a good file. Raises ConfigError."""
    from pipecd_model.lint import lint  # noqa: PLC0415 - slow to import

    problems = lint(text, file=str(file))
    if problems.faults:
        said = "; ".join(f"{each.path}: {each.message}" for each in problems.faults)
        raise ConfigError(f"these choices do not make a good file: {said}")


def _write(file: Path, text: str, *, force: bool) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if force:
            write_atomically(file, text.encode())
            return
        # Created only if it is not there at this very moment.
        with file.open("x") as opened:
            opened.write(text)
    except FileExistsError:
        raise _refusal(file) from None
    except OSError as error:
        raise ConfigError(
            f"cannot write {str(file)!r}: {error.strerror}", hint="name another folder"
        ) from None


def _tell_next(file: Path, choices: ApplicationChoices) -> None:
    echo(f"wrote {file}")
    echo("\nNext:", err=True)
    echo(f"  pipectl lint {file}", err=True)
    echo(f"  pipectl simulate {file}", err=True)
    echo("  commit and push it, and register it: pipectl application add --help", err=True)
    if choices.plugin != SCRIPT:
        echo(f"  the piped must run the plugin {choices.plugin}, with a deploy target", err=True)
