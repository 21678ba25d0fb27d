# SPDX-License-Identifier: Apache-2.0
"""What people write for this plugin: of the piped file, the application file and the pipeline."""

import posixpath
from pathlib import PurePosixPath
from typing import ClassVar, Literal

from pipecd_sdk import (
    ApplicationConfig,
    Percentage,
    PluginConfig,
    Report,
    StageConfig,
    TargetConfig,
    field,
)
from pipecd_sdk.constraints import AnyGiven, InRange, NotTogether
from pipecd_sdk.kit import patterns

DifferenceName = Literal["CHANGED", "MISSING", "EXTRA", "MODE"]


class FilesPluginConfig(PluginConfig):
    """The options of the plugin."""

    keep: int = 5
    """How many releases stay in each directory, the current one included."""
    flush: bool = True
    """Write everything to disk before the link is switched: a release survives a power cut."""

    def check(self, report: Report) -> None:
        if not report.is_broken("keep") and self.keep < 2:
            report.fault(
                "keep",
                message=f"must be 2 or more: {self.keep}",
                hint="a rollback needs the release before the current one",
            )


class FilesTarget(TargetConfig):
    """The options of a deploy target."""

    path: str
    """The directory to deploy to; `current` in it leads to the release."""

    def check(self, report: Report) -> None:
        if not report.is_broken("path") and not posixpath.isabs(self.path):
            report.fault("path", message=f"must be an absolute path: {self.path!r}")


class IgnoreRule(ApplicationConfig):
    """Differences that are none of our business."""

    paths: tuple[str, ...]
    """Patterns; which files."""
    differences: tuple[DifferenceName, ...] = ()
    """Which differences of them; none named means all."""

    def check(self, report: Report) -> None:
        _check_patterns(report, "paths", self.paths)


class FilesOptions(ApplicationConfig):
    """The options in an application file, under `spec.plugins.files`."""

    source: str = "."
    """The folder to deploy, within the application's folder."""
    into: str = ""
    """A folder within each deploy target's directory; for several applications on one target."""
    exclude: tuple[str, ...] = ()
    """Patterns of files that are not deployed."""
    version_file: str = ""
    """A file that holds the version; without it the version is the commit."""
    quick_sync_paths: tuple[str, ...] = ()
    """Patterns of files that are not worth a pipeline when only they have changed."""
    ignore_drift: tuple[IgnoreRule, ...] = ()
    """Differences between a directory and git that do not matter."""
    hide: tuple[str, ...] = ()
    """Patterns of files whose contents are never shown; those that hold secrets are added."""

    def check(self, report: Report) -> None:
        for key in ("exclude", "quick_sync_paths", "hide"):
            _check_patterns(report, key, getattr(self, key))
        for key in ("source", "into", "version_file"):
            if not report.is_broken(key) and _leaves(getattr(self, key)):
                report.fault(key, message=f"leaves its folder: {getattr(self, key)!r}")
        if not report.is_broken("into") and {"releases", "current"} & set(
            PurePosixPath(self.into).parts
        ):
            report.fault("into", message="'releases' and 'current' are names of the plugin itself")


class RolloutConfig(StageConfig):
    """The options of FILES_SYNC and FILES_PRIMARY_ROLLOUT: there are none."""


class CanaryConfig(StageConfig):
    """The options of FILES_CANARY_ROLLOUT: which deploy targets come first."""

    constraints: ClassVar = (
        AnyGiven(
            among=("targets", "labels", "percentage"),
            message="no deploy target is chosen",
            hint="targets, labels or percentage",
        ),
        NotTogether(
            key="targets",
            others=("labels", "percentage"),
            message="cannot be given together with labels or percentage",
        ),
        InRange(key="percentage", minimum=1, maximum=100, message="must be 1 to 100: {value}"),
    )

    targets: tuple[str, ...] = ()
    """Their names."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels that they have, all of them."""
    percentage: Percentage | None = None
    """How many of all, or of those with the labels; a part of one counts as one."""


def _check_patterns(report: Report, key: str, given: tuple[str, ...]) -> None:
    if report.is_broken(key):
        return
    for each in given:
        try:
            patterns.check(each)
        except patterns.BadPatternError as error:
            report.fault(key, message=str(error))


def _leaves(path: str) -> bool:
    """Returns whether a path leads out of the folder that it starts in."""
    parts = PurePosixPath(posixpath.normpath(path)).parts if path else ()
    return bool(parts) and (parts[0] in {"/", ".."})
