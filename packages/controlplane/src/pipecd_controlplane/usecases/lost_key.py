# SPDX-License-Identifier: Apache-2.0
"""A data folder without its encryption key: a new key would open none of the secrets in the rows.

So it is, for example, when everything was moved to another folder, and the key was not copied.
"""

from collections.abc import Sequence
from pathlib import Path

from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.hooks import Hooks
from pipecd_controlplane.store.projects import Projects
from pipecd_controlplane.usecases.sso_settings import list_closed
from pipecd_controlplane.usecases.vault import KEY_FILE, UNKNOWN_KEY, is_encrypted
from pipecd_model.errors import ConfigError


async def refuse_lost_key(database: Database, files: Sequence[Path], folder: Path) -> None:
    """Raises ConfigError when a new key would be made, and there are secrets already."""
    path = folder / KEY_FILE
    if files or path.exists() or not await _has_secrets(database):
        return
    raise ConfigError(
        UNKNOWN_KEY,
        hint=f"copy {KEY_FILE} of its data folder until now into {str(folder)!r}, or name the key"
        " with --encryption-key-file; if it is lost, make a new one (head -c64 /dev/urandom |"
        f" base64 > {path}), and set the secrets of single sign-on and of hooks again",
    )


async def _has_secrets(database: Database) -> bool:
    if any(is_encrypted(each.secret) for each in await Hooks(database).list_all()):
        return True
    projects = Projects(database, lambda: 0)  # they are only read
    return any(map(list_closed, await projects.all()))
