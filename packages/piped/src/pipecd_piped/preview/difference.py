# SPDX-License-Identifier: Apache-2.0
"""How two commits of an application differ: its files in git, and what its plugins say.

All of it is cut to what a person reads, and known secrets are masked.
"""

from collections.abc import Callable, Iterable
from typing import Final

from pipecd_model.config import ApplicationConfig
from pipecd_model.trigger import find_touching
from pipecd_piped.git import Repository
from pipecd_piped.source import place_of
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.model.planpreview_pb2 import PluginPlanPreviewResult
from pipecd_wire.pipecd.control.control_pb2 import PluginDiff

MOST_FILES: Final = 100
MOST_DETAILS: Final = 1024 * 1024
"""Characters of all plugins' details together; each has the same share."""

CUT: Final = "\n… the rest is left out, because it is too long\n"


async def list_changed_files(
    repository: Repository,
    git_path: ApplicationGitPath,
    config: ApplicationConfig,
    old: str,
    new: str,
) -> tuple[list[str], int]:
    """Returns the application's files that differ, and how many more there are.

    Raises GitError.
    """
    changed = await repository.list_changed_paths(old, new)
    files = sorted(
        find_touching(
            changed,
            app_dir=place_of(git_path).folder,
            paths=config.trigger.on_commit.paths,
            ignores=(),
        )
    )
    shown = [file.encode(errors="replace").decode() for file in files[:MOST_FILES]]
    return shown, max(0, len(files) - MOST_FILES)


def cut_diffs(
    results: Iterable[PluginPlanPreviewResult], mask: Callable[[str], str]
) -> list[PluginDiff]:
    """Returns what the plugins would change, short enough to be shown."""
    found = list(results)
    share = MOST_DETAILS // max(1, len(found))
    return [
        PluginDiff(
            plugin_name=each.plugin_name,
            deploy_target=each.deploy_target,
            summary=shorten(mask(_decode(each.plan_summary)), share),
            details=shorten(mask(_decode(each.plan_details)), share),
            language=each.diff_language,
            no_change=not each.plan_details,
        )
        for each in found
    ]


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")


def shorten(text: str, most: int) -> str:
    """Returns a text that is cut if it is too long. Mask first: half a secret is not found."""
    return text if len(text) <= most else f"{text[:most]}{CUT}"
