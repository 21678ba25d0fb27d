# SPDX-License-Identifier: Apache-2.0
"""Decides whether a commit or a command deploys an application, and why. Pure: no I/O."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pipecd_model.config import ApplicationConfig
from pipecd_model.paths import matches

MOST_REPAIRS: Final = 3
"""Repairs in a row of what is out of sync."""

SETTLED_SECONDS: Final = 3600.0
"""What was in sync for so long after a repair was repaired: the next one begins a new row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether to deploy, with the reason as a sentence for people."""

    deploy: bool
    reason: str


def on_commit(
    config: ApplicationConfig,
    *,
    app_dir: str,
    head: str,
    last: str | None,
    changed: Collection[str],
) -> Decision:
    """Decide about a branch that stands at `head`; `last` is the commit that was deployed last.

    `changed` are the files that differ between the two, from the repository's root.
    """
    rule = config.trigger.on_commit
    if rule.disabled:
        return Decision(deploy=False, reason="the application does not deploy on commits")
    if last is None:
        return Decision(deploy=True, reason="the application was never deployed")
    if head == last:
        return Decision(deploy=False, reason=f"the commit {head[:7]} was deployed already")
    file = next(
        find_touching(changed, app_dir=app_dir, paths=rule.paths, ignores=rule.ignores), None
    )
    if file is None:
        return Decision(deploy=False, reason=f"the commit {head[:7]} touches none of its files")
    return Decision(deploy=True, reason=f"the commit {head[:7]} changes {file}")


def on_command(config: ApplicationConfig) -> Decision:
    """Decides whether a command of a person deploys the application."""
    if config.trigger.on_command.disabled:
        return Decision(deploy=False, reason="the application does not deploy on command")
    return Decision(deploy=True, reason="somebody asked for it")


def on_chain(config: ApplicationConfig) -> Decision:
    """Decides whether the application follows the chain of another one."""
    if config.trigger.on_chain.disabled:
        return Decision(
            deploy=False,
            reason="the application follows no chains; `trigger.onChain.disabled: false` in its"
            " file changes that",
        )
    return Decision(deploy=True, reason="a chain has reached the application")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDeployment:
    """The most recently triggered deployment of an application, as far as a repair needs it."""

    completed_at: float | None
    """None while it is not over."""
    succeeded: bool
    repairs: int = 0
    """How many repairs in a row it is the last of; 0 when it was triggered otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairDecision(Decision):
    """Whether an application that is out of sync is deployed again."""

    retry_at: float | None = None
    """When the answer may be another one; None when only a change of something else helps."""
    repairs: int = 0
    """Of a deployment: how many repairs in a row it is the last of."""
    gave_up: bool = False
    """Whether it was repaired in vain so often that a person has to look."""


def on_out_of_sync(
    config: ApplicationConfig, *, now: float, since: float, last: LastDeployment
) -> RepairDecision:
    """Decide about an application whose live state differs from git since `since`.

    What is out of sync again soon after its repair is changed by something that no deployment
    helps against: after `MOST_REPAIRS` in a row nothing more is done by itself.
    """
    rule = config.trigger.on_out_of_sync
    if rule.disabled:
        return RepairDecision(deploy=False, reason="the application is not repaired by itself")
    window = rule.min_window.total_seconds()
    if last.completed_at is None:
        return RepairDecision(
            deploy=False, reason="it is being deployed", retry_at=now + max(window, 1)
        )
    if not last.succeeded:
        return RepairDecision(deploy=False, reason="its last deployment did not succeed")
    if now < last.completed_at + window:
        return RepairDecision(
            deploy=False,
            reason=f"its last deployment was over less than {rule.min_window} ago",
            retry_at=last.completed_at + window,
        )
    settled = since - last.completed_at >= max(SETTLED_SECONDS, 10 * window)
    repairs = 0 if settled else last.repairs
    if repairs >= MOST_REPAIRS:
        return RepairDecision(
            deploy=False,
            gave_up=True,
            reason=f"out of sync again after {repairs} repairs in a row: something else changes"
            " it; it is left alone until a newer commit or a person deploys it",
        )
    return RepairDecision(deploy=True, reason="what runs differs from git", repairs=repairs + 1)


def is_touched(
    changed: Iterable[str], *, app_dir: str, paths: Collection[str], ignores: Collection[str]
) -> bool:
    """Returns whether any of the changed files is one of the application's."""
    return any(find_touching(changed, app_dir=app_dir, paths=paths, ignores=ignores))


def find_touching(
    changed: Iterable[str], *, app_dir: str, paths: Collection[str], ignores: Collection[str]
) -> Iterator[str]:
    """Yields the changed files that are the application's: in its folder, or matching its paths.

    Ignored files are left out; the other files of the same commit still count.
    """
    folder = posixpath.normpath(app_dir)
    for file in changed:
        if matches(ignores, file):
            continue
        if folder == "." or file.startswith(f"{folder}/") or matches(paths, file):
            yield file
