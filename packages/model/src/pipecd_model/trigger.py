# SPDX-License-Identifier: Apache-2.0
"""Decides whether a commit or a command deploys an application, and why. Pure: no I/O."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from pipecd_model.config import ApplicationConfig
from pipecd_model.paths import matches


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
