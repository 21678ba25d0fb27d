# SPDX-License-Identifier: Apache-2.0
"""Options and arguments that several commands take, and kinds of their values."""

import signal
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from pipecd_model.config.values import Duration, format_bad_value
from pipecd_model.errors import add_hint
from pipecd_model.gitnames import BadGitNameError, RepositoryPath
from pipecd_pipectl.completions import (
    complete_application_ids,
    complete_applications,
    complete_deployment_ids,
    complete_deployments,
    complete_piped_ids,
    complete_pipeds,
)
from pipecd_pipectl.output import echo, wrap_text
from pipecd_runtime.command_line import DurationParam
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.model.common_pb2 import SyncStrategy

F = TypeVar("F", bound=Callable[..., Any])


class PairType(click.ParamType[tuple[str, str]]):
    """`key=value` or `key:value`."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        separator = "=" if "=" in value else ":"
        key, found, rest = value.partition(separator)
        if not found or not key:
            self.fail(f"{value!r} is not key=value", param, ctx)
        return key, rest


class FolderInRepositoryType(click.ParamType[str]):
    """The folder of an application, from the root of its repository."""

    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            folder = RepositoryPath(value)
        except BadGitNameError as error:
            self.fail(add_hint(error, error.hint), param, ctx)
        # The wire wants two characters; one more slash says the same to every agent.
        return value if len(value) > 1 else f"{folder or '.'}/"


DURATION = DurationParam(Duration.parse, format_error=format_bad_value)
FOLDER_IN_REPOSITORY = FolderInRepositoryType()
PAIR = PairType()


def parse_pairs(text: str) -> dict[str, str]:
    """Returns the pairs of `k=v,k=v`. Raises click.BadParameter for what is none."""
    return dict(PAIR.convert(pair, None, None) for pair in text.split(",") if pair)


STRATEGIES: Final = {
    "auto": SyncStrategy.AUTO,
    "quick": SyncStrategy.QUICK_SYNC,
    "pipeline": SyncStrategy.PIPELINE,
}
"""What `--strategy` takes."""

comment_option = click.option(
    "--comment", default="", help="Why; shown with your name in the deployment's story."
)

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be done, and change nothing."
)


def application_argument(command: F) -> F:
    """Adds the argument that names an application, and the option that gives its id."""
    by_id = click.option(
        "--app-id",
        default="",
        help="The application, by its whole id.",
        shell_complete=complete_application_ids,
    )
    argument = click.argument(
        "name", metavar="[APPLICATION]", default="", shell_complete=complete_applications
    )
    return argument(by_id(command))


def deployment_argument(command: F) -> F:
    """Adds the argument that names a deployment, and the option that gives its id."""
    by_id = click.option(
        "--deployment-id",
        default="",
        help="The deployment, by its whole id.",
        shell_complete=complete_deployment_ids,
    )
    newest = click.option("--latest", is_flag=True, help="The newest deployment of the project.")
    argument = click.argument(
        "name", metavar="[APPLICATION|DEPLOYMENT]", default="", shell_complete=complete_deployments
    )
    return argument(by_id(newest(command)))


def piped_argument(command: F) -> F:
    """Adds the argument that names a piped, and the option that gives its id."""
    by_id = click.option(
        "--piped-id",
        default="",
        help="The piped, by its whole id.",
        shell_complete=complete_piped_ids,
    )
    argument = click.argument("name", metavar="[PIPED]", default="", shell_complete=complete_pipeds)
    return argument(by_id(command))


def check_one_given(noun: str, **given: str | bool) -> None:
    """Raises UsageError unless exactly one of the ways to name a thing was used."""
    used = [flag for flag, value in given.items() if value]
    ways = [_to_flag(noun, flag) for flag in given]
    if not used:
        raise click.UsageError(f"which {noun}? Give {' or '.join(ways)}")
    if len(used) > 1:
        both = [_to_flag(noun, flag) for flag in used]
        raise click.UsageError(f"{' and '.join(both)} exclude each other")


def _to_flag(noun: str, flag: str) -> str:
    return f"its name or id ({noun.upper()})" if flag == "name" else f"--{flag.replace('_', '-')}"


def confirm(question: str) -> bool:
    """Asks at the terminal, and returns whether the answer is yes. Ctrl-C raises click.Abort.

    A running loop takes that signal for itself, and would tell of it only after an answer.
    """
    taken = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return click.confirm(make_printable_line(question), err=True)
    finally:
        signal.signal(signal.SIGINT, taken)


def say_dry_run(what: str) -> None:
    """Prints what a command would have done."""
    echo(wrap_text(f"would {make_printable_line(what)}; nothing was changed (--dry-run)"))
