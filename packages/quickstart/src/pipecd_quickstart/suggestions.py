# SPDX-License-Identifier: Apache-2.0
"""What to try next: commands that work when they are typed in the order in which they are shown.

They are typed in the example repository, in another terminal. `pipecd quickstart --check` types
exactly these.
"""

import shlex
from dataclasses import dataclass
from typing import Final

from pipecd_model.deployment import is_completed
from pipecd_quickstart import example
from pipecd_quickstart.folder import QuickstartFolder
from pipecd_wire.model import deployment_pb2

PIPECTL: Final = "pipectl"

APPROVE: Final = f"{PIPECTL} deployment approve hello"
STOP: Final = f"{PIPECTL} deployment cancel hello"
SEE_DRIFT: Final = f"{PIPECTL} application diff website"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Something to try, and the commands that do it."""

    title: str
    commands: tuple[str, ...]


PUBLISH: Final = Suggestion(title="Approve: the last stage publishes", commands=(APPROVE,))
LOOK: Final = Suggestion(
    title="Look at the deployment, read its logs",
    commands=(f"{PIPECTL} deployment get hello", f"{PIPECTL} deployment logs hello"),
)
CHANGE: Final = Suggestion(
    title="Change it: every commit is a deployment",
    commands=("date >> hello/message.txt && git commit -qam change", APPROVE),
)
BREAK: Final = Suggestion(
    title="Break it: the deployment fails and takes its steps back",
    commands=("echo exit 1 >> hello/publish.sh && git commit -qam break", APPROVE),
)
MEND: Final = Suggestion(
    title="Mend it",
    commands=("sed -i '/^exit 1/d' hello/publish.sh && git commit -qam mend", APPROVE),
)
CANCEL: Final = Suggestion(
    title="Change your mind: cancel what waits",
    commands=(
        "date >> hello/message.txt && git commit -qam maybe",
        STOP,
    ),
)
DRIFT: Final = Suggestion(
    title="Edit the website by hand, see the drift, put it right",
    commands=(
        "echo by hand > ../out/www/east/current/index.html",
        SEE_DRIFT,
        f"{PIPECTL} application sync website",
    ),
)


def choose_suggestions(folder: QuickstartFolder, *, is_waiting: bool) -> tuple[Suggestion, ...]:
    """Returns what works now, in order; `is_waiting` says whether hello has a deployment open."""
    begin = (PUBLISH,) if is_waiting else ()
    mend = (MEND,) if example.is_broken(folder) else ()
    website = (DRIFT,) if example.has_application(folder, "website") else ()
    return (*begin, *mend, LOOK, CHANGE, BREAK, MEND, CANCEL, *website)


def format_suggestions(
    folder: QuickstartFolder, suggestions: tuple[Suggestion, ...], *, again: str
) -> str:
    """Returns the text for a terminal; `again` says how it is shown again."""
    lines = [
        "",
        "What to try next. Open another terminal and go to the example repository;",
        "the second line lets it find this quickstart's pipectl:",
        "",
        f"  {enter_repository(folder)}",
        f"  {find_pipectl(folder)}",
        "",
        "Then one after the other; approve when this terminal asks for it:",
    ]
    for number, suggestion in enumerate(suggestions, start=1):
        lines += ["", f"  {number}. {suggestion.title}"]
        lines += [f"     {command}" for command in suggestion.commands]
    return "\n".join([*lines, "", again, ""])


def enter_repository(folder: QuickstartFolder) -> str:
    return f"cd {shlex.quote(str(folder.repository))}"


def find_pipectl(folder: QuickstartFolder) -> str:
    """Returns what is typed first: then also the commands that pipectl itself suggests are found.

    A colon separates the folders of PATH, so one that has a colon in its name cannot be there.
    """
    if ":" in str(folder.repository):
        return 'pipectl() { ../pipectl "$@"; }'
    return 'export PATH="$PWD/..:$PATH"'


def is_waiting_for_approval(deployment: deployment_pb2.Deployment) -> bool:
    """Returns whether one of its stages waits for a person."""
    return any(
        stage.status == deployment_pb2.STAGE_RUNNING
        and stage.available_operation == deployment_pb2.MANUAL_OPERATION_APPROVE
        for stage in deployment.stages
    )


def is_open(deployment: deployment_pb2.Deployment) -> bool:
    return not is_completed(deployment.status)
