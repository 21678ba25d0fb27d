# SPDX-License-Identifier: Apache-2.0
"""Where the records of scripts are, and whose they are.

`<scripts>/<deployment>/<stage>-<retry>.<attempt>/`, made by the plugin that runs scripts. That of a
script that rolls back has `rollback-` before the stage.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""An id that is the name of its folder; any other is hashed, so that none leads out of ours."""

HASHED: Final = 64
"""Characters of a folder whose deployment's id is no plain name; it does not tell the id."""

REMOVED: Final = ".removed-"
"""Before the name of a folder that is being removed: no shim finds it any more."""

_RECORD: Final = re.compile(r"(?P<stage>.+)-[0-9]+\.[0-9]+")


def plain_name(name: str) -> str:
    """The name of a folder for an id."""
    return name if PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()


def folder_of(scripts: Path, deployment_id: str) -> Path:
    """Where the records of a deployment are."""
    return scripts / plain_name(deployment_id)


def deployments_in(scripts: Path) -> list[Path]:
    """The folders of all deployments."""
    try:
        found = sorted(scripts.iterdir())
    except OSError:
        return []
    return [each for each in found if not each.name.startswith(".") and each.is_dir()]


def records_in(deployment: Path, *, only: str | None = None, but: str | None = None) -> list[Path]:
    """The records of a deployment: `only` those of one stage, or all `but` those of one."""
    try:
        found = sorted(each for each in deployment.iterdir() if each.is_dir())
    except OSError:
        return []
    if only is not None:
        found = [each for each in found if _is_of(each, only)]
    if but is not None:
        found = [each for each in found if not _is_of(each, but)]
    return found


def _is_of(record: Path, stage_id: str) -> bool:
    match = _RECORD.fullmatch(record.name)
    return match is not None and match["stage"] in set(_names_of(stage_id))


def _names_of(stage_id: str) -> Iterator[str]:
    yield plain_name(stage_id)
    yield plain_name(f"rollback-{stage_id}")
