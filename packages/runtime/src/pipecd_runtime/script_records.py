# SPDX-License-Identifier: Apache-2.0
"""The layout of script records, for the plugin that writes them and piped, which reads them.

`<scripts>/<deployment>/<stage>-<retry>.<attempt>/`. Piped gives every plugin the folder
`<scripts>`, and removes that of a deployment when it is over and no `lock` in it is held. The stage
of a script that rolls back has `rollback-` before it. The script shim, which runs on the standard
library alone, has copies of the file names that a test compares.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

INTENT: Final = "intent"
"""The script's token, written by the plugin before it reports the script."""
LOCK: Final = "lock"
"""Locked while the shim lives."""
STARTED: Final = "started"
"""Made exactly once: by the shim before the first command, or to forbid the script."""
STOPPED: Final = "stopped"
"""The script must not start, or must end. Also the text of `started` for a forbidden script."""
GRACE: Final = "grace"
"""Seconds that the script gets to end by itself."""
EXIT: Final = "exit"
"""How it ended: its exit code, and whether it was asked to end."""

HASHED: Final = 64
"""Characters of a folder whose deployment's id is no plain name; the id cannot be read from it."""
REMOVED: Final = ".removed-"
"""Before the name of a folder that is being removed: no shim finds it any more."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_RECORD: Final = re.compile(r"(?P<stage>.+)-[0-9]+\.[0-9]+")


def to_folder_name(name: str) -> str:
    """Returns the folder name of an id: itself when it is plain, else its hash.

    So no id leads out of the folder.

    Example:
        >>> to_folder_name("deployment-1")
        'deployment-1'
        >>> len(to_folder_name("../etc"))
        64
    """
    return name if _PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()


def find_deployment_folder(scripts: Path, deployment_id: str) -> Path:
    """Returns the folder of a deployment's records, whether it exists or not.

    Example:
        >>> find_deployment_folder(Path("/data/scripts"), "deployment-1").name
        'deployment-1'
    """
    return scripts / to_folder_name(deployment_id)


def format_record_prefix(stage_id: str, retry: int) -> str:
    """Returns how the names of a script's records begin; the number of the attempt follows.

    Example:
        >>> format_record_prefix("stage-1", 0)
        'stage-1-0.'
    """
    return f"{to_folder_name(stage_id)}-{retry}."


def list_deployment_folders(scripts: Path) -> list[Path]:
    """Returns the folders of all deployments, sorted; none when they cannot be listed."""
    try:
        found = sorted(scripts.iterdir())
    except OSError:
        return []
    return [each for each in found if not each.name.startswith(".") and each.is_dir()]


def list_records(
    deployment: Path, *, only: str | None = None, but: str | None = None
) -> list[Path]:
    """Returns the records of a deployment: `only` those of one stage, or all `but` those of one."""
    try:
        found = sorted(each for each in deployment.iterdir() if each.is_dir())
    except OSError:
        return []
    if only is not None:
        found = [each for each in found if _belongs_to(each, only)]
    if but is not None:
        found = [each for each in found if not _belongs_to(each, but)]
    return found


def _belongs_to(record: Path, stage_id: str) -> bool:
    match = _RECORD.fullmatch(record.name)
    return match is not None and match["stage"] in set(_iter_names(stage_id))


def _iter_names(stage_id: str) -> Iterator[str]:
    yield to_folder_name(stage_id)
    yield to_folder_name(f"rollback-{stage_id}")
