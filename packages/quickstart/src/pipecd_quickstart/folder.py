# SPDX-License-Identifier: Apache-2.0
"""The folder of a quickstart: its paths, who uses it, and the state that a later start needs."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from pipecd_model.errors import NotFoundError, StateError
from pipecd_runtime.files import write_atomically
from pipecd_runtime.folder_lock import LOCK_FILE, FolderInUseError, FolderLock
from pipecd_runtime.private_folder import UnsafeFolderError

MARKER: Final = "quickstart.json"

STOP_HINT: Final = "stop it first: Ctrl-C in its terminal, or `kill {pid}`"


@dataclass(slots=True, kw_only=True)
class SavedState:
    """What the first start found out and later ones use."""

    piped_id: str = ""
    port: int = 0
    applications: dict[str, str] = field(default_factory=dict)
    """Application name to id."""


class QuickstartFolder:
    """Paths under the data folder. A marker file says that it is ours; others are refused."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.control_plane = self.root / "control-plane"
        self.piped = self.root / "piped"
        self.piped_config = self.root / "piped.yaml"
        self.piped_key = self.root / "piped.key"
        self.repository = self.root / "repository"
        self.out = self.root / "out"
        self.server_log = self.root / "server.log"
        self.piped_log = self.root / "piped.log"
        self.console_log = self.root / "console-build.log"
        self.pipectl = self.root / "pipectl"
        self.admin_key = self.control_plane / "admin.key"

    def site(self, region: str) -> Path:
        """Returns the folder that the website of a region is deployed to."""
        return self.out / "www" / region

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the folder and keeps other quickstarts out of it while the block runs.

        Raises StateError when one uses it, or when it is not empty and not a quickstart's.
        """
        if not self._marker.exists() and self._has_foreign_entries():
            raise StateError(
                f"{str(self.root)!r} is not empty and not a quickstart folder",
                hint="choose another with --data-dir",
            )
        with ExitStack() as held:
            held.enter_context(self._lock(self.root, "a quickstart runs already", STOP_HINT))
            if not self._marker.exists():
                self.remember(SavedState())
            self.out.mkdir(parents=True, exist_ok=True)
            self._refuse_orphans()
            yield

    def clean(self) -> None:
        """Removes the folder. Raises StateError for one that is in use, or not a quickstart's."""
        if not self.root.exists():
            return
        if not self._marker.exists():
            raise StateError(f"{str(self.root)!r} is not a quickstart folder; nothing was removed")
        with self._lock(self.root, "the quickstart runs", STOP_HINT):
            self._refuse_orphans()
            shutil.rmtree(self.root)

    def is_running(self) -> bool:
        """Returns whether a quickstart uses the folder now."""
        try:
            self._lock(self.root, "", "").close()
        except StateError:
            return True
        return False

    def require(self) -> None:
        """Raises NotFoundError when there is no quickstart in the folder."""
        if not self._marker.exists():
            raise NotFoundError(
                f"there is no quickstart in {str(self.root)!r}",
                hint="start one, or name its folder with --data-dir",
            )

    @property
    def is_new(self) -> bool:
        return not self._marker.exists() or not self.recall().applications

    def recall(self) -> SavedState:
        """Returns the saved state. Raises StateError when it cannot be read."""
        try:
            return SavedState(**json.loads(self._marker.read_text()))
        except (ValueError, TypeError):
            raise StateError(
                f"{str(self._marker)!r} is damaged", hint="remove everything with --clean"
            ) from None

    def remember(self, memory: SavedState) -> None:
        write_atomically(self._marker, (json.dumps(asdict(memory), indent=2) + "\n").encode())

    @property
    def _marker(self) -> Path:
        return self.root / MARKER

    def _has_foreign_entries(self) -> bool:
        return self.root.exists() and any(
            entry.name not in {LOCK_FILE, f"{MARKER}.new"} for entry in self.root.iterdir()
        )

    def _refuse_orphans(self) -> None:
        """Raises StateError for a program that a quickstart which was killed has left running."""
        for folder, name in ((self.control_plane, "control plane"), (self.piped, "piped")):
            if folder.exists():
                sentence = f"the {name} of an earlier quickstart still runs"
                self._lock(folder, sentence, "end it first: `kill {pid}`").close()

    @staticmethod
    def _lock(folder: Path, sentence: str, hint: str) -> FolderLock:
        try:
            return FolderLock(folder)
        except FolderInUseError as used:
            raise StateError(
                f"{sentence} in {str(folder)!r}", hint=hint.format(pid=used.owner or "PID")
            ) from None
        except UnsafeFolderError as unsafe:
            raise StateError(str(unsafe), hint=unsafe.hint) from None


def quote_for_yaml(path: Path) -> str:
    """Returns a path as a string of YAML, whatever is in it."""
    return json.dumps(str(path), ensure_ascii=False)
