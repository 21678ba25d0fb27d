# SPDX-License-Identifier: Apache-2.0
"""Chooses the targets of a canary, the version and the strategy of a deployment. Pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pipecd_plugin_files.config import CanaryConfig, FilesOptions
from pipecd_plugin_files.entry import format_path
from pipecd_sdk import Deployment, DeployTarget, StageFailedError, Strategy, SyncStrategy
from pipecd_sdk.kit import patterns

LONGEST_VERSION = 100


def choose_targets(config: CanaryConfig, targets: Sequence[DeployTarget]) -> list[DeployTarget]:
    """Returns the deploy targets of a canary, in the order they are given.

    Raises StageFailedError for an unknown target, or when no target has the labels.
    """
    if config.targets:
        known = {target.name for target in targets}
        if unknown := [name for name in config.targets if name not in known]:
            raise StageFailedError(
                f"not a deploy target of this application: {', '.join(map(repr, unknown))}",
                hint=f"it has {', '.join(sorted(known))}",
            )
        return [target for target in targets if target.name in config.targets]
    found = [target for target in targets if _has(target.labels, config.labels)]
    if not found:
        raise StageFailedError(f"no deploy target has the labels {dict(config.labels)!r}")
    if config.percentage is None:
        return found
    return found[: -(-len(found) * config.percentage // 100)]


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def version(options: FilesOptions, commit: str, text: bytes | None) -> str:
    """Returns the version of a commit, from its version file if the application has one.

    Raises StageFailedError when the version file is missing or empty.
    """
    if not options.version_file:
        return commit[:7]
    if text is None:
        raise StageFailedError(f"there is no version file {options.version_file!r}")
    lines = text.decode(errors="replace").strip().splitlines()
    if not lines:
        raise StageFailedError(f"the version file {options.version_file!r} is empty")
    return lines[0].strip()[:LONGEST_VERSION]


def strategy(options: FilesOptions, changed: Sequence[str]) -> Strategy:
    """Returns the strategy for a change of these files: is it worth the pipeline?"""
    if not changed:
        return Strategy(sync=SyncStrategy.QUICK_SYNC, summary="Quick sync, no file has changed")
    worth = [path for path in changed if not patterns.matches(options.quick_sync_paths, path)]
    if not worth:
        meant = ", ".join(options.quick_sync_paths)
        return Strategy(
            sync=SyncStrategy.QUICK_SYNC,
            summary=f"Quick sync, all {len(changed)} changed files are of {meant}",
        )
    more = f" and {len(worth) - 1} more" if len(worth) > 1 else ""
    return Strategy(summary=f"Pipeline sync, {format_path(worth[0])}{more} changed")


def release_id(deployment: Deployment) -> str:
    """Returns the name of a deployment's release; releases sorted by name are sorted by age."""
    created = deployment.created_at.astimezone(UTC)
    return f"{created:%Y%m%dT%H%M%S}-{deployment.commit.hash[:8]}-{_plain(deployment.id)[:8]}"


def _plain(text: str) -> str:
    return "".join(char if char.isalnum() and char.isascii() else "_" for char in text)


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
