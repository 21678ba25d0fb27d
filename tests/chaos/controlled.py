# SPDX-License-Identifier: Apache-2.0
"""Applications about which people and rules decide: their files, in versions, and their pipelines.

They belong to the stories of a round (`stories.py`). The first line of a file tells its version, so
that git says which one a deployment has deployed, whichever commit was the newest just then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.applications import EXIT_CODE, Stage, event, script, stage_text

FOLLOWS = "  trigger:\n    onCommit: {disabled: true}\n    onChain: {disabled: false}\n"
LOCK = "shared"
MIDDLE = {"chaos": "middle"}
"""The label of the two applications of the second block of the chain."""
LABELLED = f"  labels: {{chaos: middle}}\n{FOLLOWS}"
CHAIN = (("chain-first",), ("chain-left", "chain-right"), ("chain-last",))
"""The applications of each block."""
LOCKED = ("locked-queue", "locked-reject")


@dataclass(frozen=True, slots=True, kw_only=True)
class Controlled:
    """An application of a story."""

    stages: tuple[Stage, ...]
    settings: str = ""
    """More of its `spec`."""
    labels: Mapping[str, str] | None = None
    stops: frozenset[str] = frozenset()
    """The kinds of stages of it that may be stopped in the middle."""
    may_fail: bool = False
    """Does its last stage fail where the story wants it?"""
    until_fixed: bool = False
    """Does its script fail until a person has repaired something?"""


WAITS = frozenset({"WAIT", "WAIT_APPROVAL"})
APPROVAL = Stage(kind="WAIT_APPROVAL")
SHORT = (script(3, 0.05, undo=True), script(4, 0.05, undo=True))
APPLICATIONS: dict[str, Controlled] = {
    "chain-first": Controlled(
        stages=SHORT,
        settings="  postSync:\n    chain:\n      applications:\n"
        "        - labels: {chaos: middle}\n        - name: chain-last\n",
    ),
    "chain-left": Controlled(stages=SHORT, settings=LABELLED, labels=MIDDLE, may_fail=True),
    "chain-right": Controlled(
        stages=(script(4, 0.1, undo=True), script(8, 0.1, undo=True)),
        settings=LABELLED,
        labels=MIDDLE,
        stops=frozenset({"SCRIPT_RUN"}),
    ),
    "chain-last": Controlled(stages=SHORT, settings=FOLLOWS),
    "superseded": Controlled(
        stages=(
            script(4, 0.05, undo=True),
            Stage(kind="WAIT", pause=0.6),
            script(6, 0.05, undo=True),
            APPROVAL,
            script(2, 0.0, undo=True),
        ),
        settings="  queue:\n    mode: supersede\n",
        stops=WAITS,
    ),
    "locked-queue": Controlled(
        stages=SHORT, settings=f"  queue:\n    mode: queue\n    locks: [{LOCK}]\n"
    ),
    "locked-reject": Controlled(
        stages=(script(3, 0.05, undo=True), APPROVAL, script(4, 0.05, undo=True)),
        settings=f"  queue:\n    mode: reject\n    locks: [{LOCK}, other]\n",
    ),
    "held": Controlled(stages=SHORT, may_fail=True),
    "pinned": Controlled(
        stages=(script(3, 0.05, undo=True), Stage(kind="WAIT", pause=0.4), script(2, 0, undo=True)),
        stops=WAITS,
    ),
    "retried": Controlled(
        stages=(script(5, 0.05, undo=True),), settings="  onFailure: wait\n", until_fixed=True
    ),
    "ruled": Controlled(stages=SHORT),
}


def plan_of(name: str, *, fails: bool) -> tuple[Stage, ...]:
    """The stages of one version."""
    *before, last = APPLICATIONS[name].stages
    return (
        (*before, Stage(lines=last.lines, pause=last.pause, undo=True, fails=True))
        if (fails)
        else APPLICATIONS[name].stages
    )


def document(name: str, effects: Path, version: str, *, fails: bool = False) -> str:
    """The application file; `version` must not have a line break."""
    about = APPLICATIONS[name]
    stages = "".join(
        stage_text(stage, index, effects / name)
        for index, stage in enumerate(plan_of(name, fails=fails))
    )
    if about.until_fixed:
        ended = event("end", 0, effects / name)
        test = f"test -e {fixed_file(effects, '$SR_DEPLOYMENT_ID')} || exit {EXIT_CODE}"
        stages = stages.replace(ended, f"{ended}\n            {test}")
    return (
        f"# {version}{' fails' if fails else ''}\n"
        "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n"
        f"  name: {name}\n{about.settings}"
        f"  planner:\n    alwaysUsePipeline: true\n  pipeline:\n    stages:\n{stages}"
    )


def fixed_file(effects: Path, deployment_id: str) -> Path:
    """What a person makes so that the script of a deployment succeeds."""
    return effects.parent / "fixed" / deployment_id
