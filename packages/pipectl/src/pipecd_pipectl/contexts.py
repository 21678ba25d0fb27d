# SPDX-License-Identifier: Apache-2.0
"""Contexts: the control planes that a person works with, and the sessions there.

Each context is a file of its own in pipectl's configuration folder, which only its user may read;
another file names the current one. A session is worth as much as a password for as long as it
lasts, so a file that others can read is closed when it is met, and one of another user is refused.
"""

import os
import re
import stat
from pathlib import Path
from typing import Final

import msgspec

from pipecd_model.errors import ConfigError, NotFoundError, PipecdError, StateError
from pipecd_runtime.files import write_atomically
from pipecd_runtime.private_folder import UnsafeFolderError, close_folder

NAME: Final = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9@._:\[\]-]{0,199}")
SUFFIX: Final = ".json"
CURRENT: Final = "current"
LARGEST_BYTES: Final = 64 * 1024
PRIVATE_MODE: Final = 0o600


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One control plane and project, and who we are there."""

    address: str
    """`host:port`."""
    insecure: bool = False
    cert_file: str = ""
    project: str = ""
    subject: str = ""
    """The name of the person who has signed in."""
    session: str = ""
    """The session's secret; empty when nobody is signed in."""
    expires_at: int = 0
    """When the session ends by itself, in Unix seconds."""


def find_folder(base: str | None = None) -> Path:
    """Returns pipectl's configuration folder: below `base`, XDG_CONFIG_HOME or ~/.config."""
    if base is None:
        base = os.environ.get("XDG_CONFIG_HOME", "")
    # The specification has it that a relative path is ignored.
    folder = Path(base) if base.startswith("/") else Path.home() / ".config"
    return folder / "pipectl"


class ContextStore:
    """The contexts in a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or find_folder()

    def list_names(self) -> list[str]:
        """Returns the names of all contexts, sorted."""
        try:
            found = sorted(self._contexts.glob(f"*{SUFFIX}"))
        except OSError as error:
            raise _explain(error, self._contexts) from None
        names = [path.name.removesuffix(SUFFIX) for path in found]
        return [name for name in names if NAME.fullmatch(name)]

    def get(self, name: str) -> Context:
        """Returns a context. Raises NotFoundError, or ConfigError for a file that is none."""
        path = self._path(name)
        data = _read_private(path)
        if data is None:
            known = ", ".join(self.list_names()) or "there are none yet: pipectl login ADDRESS"
            raise NotFoundError(f"there is no context {name!r}", hint=f"known: {known}")
        try:
            return msgspec.json.decode(data, type=Context)
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"the file {str(path)!r} holds no context: {error}",
                hint=f"remove it: pipectl context delete {name}",
            ) from None

    def save(self, name: str, context: Context) -> None:
        """Writes a context, as a whole or not at all."""
        path = self._path(name)
        try:
            for folder in (self._folder, self._contexts):
                close_folder(folder)
            write_atomically(path, msgspec.json.encode(context) + b"\n", mode=PRIVATE_MODE)
        except UnsafeFolderError as error:
            raise StateError(str(error), hint=error.hint) from None
        except OSError as error:
            raise _explain(error, path) from None

    def delete(self, name: str) -> None:
        """Removes a context. Raises NotFoundError."""
        path = self._path(name)
        try:
            path.unlink()
        except FileNotFoundError:
            self.get(name)
            raise
        except OSError as error:
            raise _explain(error, path) from None
        if self.find_current_name() == name:
            (self._folder / CURRENT).unlink(missing_ok=True)

    def rename(self, name: str, new_name: str) -> None:
        """Gives a context another name. Raises ConfigError when that is taken."""
        context = self.get(name)
        if new_name in self.list_names():
            raise ConfigError(f"there is a context {new_name!r} already")
        is_current = self.find_current_name() == name
        self.save(new_name, context)
        if is_current:
            self.use(new_name)
        self.delete(name)

    def find_current_name(self) -> str:
        """Returns the name of the context that counts where none is named; empty without one."""
        data = _read_private(self._folder / CURRENT)
        name = (data or b"").decode("utf-8", "replace").strip()
        return name if NAME.fullmatch(name) else ""

    def use(self, name: str) -> None:
        """Makes a context the current one. Raises NotFoundError."""
        self.get(name)
        path = self._folder / CURRENT
        try:
            write_atomically(path, f"{name}\n".encode(), mode=PRIVATE_MODE)
        except OSError as error:
            raise _explain(error, path) from None

    @property
    def _contexts(self) -> Path:
        return self._folder / "contexts"

    def _path(self, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"{name[:200]!r} is no name for a context",
                hint="letters, digits, and @ . _ : - after the first one",
            )
        return self._contexts / f"{name}{SUFFIX}"


def _read_private(path: Path) -> bytes | None:
    """Returns the content of a file that only we may read; None when it is not there.

    Closes one that others can read. Raises StateError for one that belongs to somebody else.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _explain(error, path) from None
    with os.fdopen(opened, "rb") as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
            raise StateError(
                f"the file {str(path)!r} is not this user's own",
                hint="see who put it there, remove it, and sign in again: pipectl login",
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(file.fileno(), PRIVATE_MODE)
        return file.read(LARGEST_BYTES)


def _explain(error: OSError, path: Path) -> PipecdError:
    return StateError(
        f"cannot use {str(path)!r}: {error.strerror}",
        hint="see that this user may write there, or name another folder in XDG_CONFIG_HOME",
    )
