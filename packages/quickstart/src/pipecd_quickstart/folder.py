# SPDX-License-Identifier: Apache-2.0
"""The folder of a quickstart: its paths, and the state that a later start needs."""

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from pipecd_model.errors import StateError

MARKER: Final = "quickstart.json"


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
        self.pipectl = self.root / "pipectl"
        self.admin_key = self.control_plane / "admin.key"

    def site(self, region: str) -> Path:
        """Returns the folder that the website of a region is deployed to."""
        return self.out / "www" / region

    def prepare(self) -> None:
        """Makes the folder. Raises StateError for one that is not empty and not a quickstart's."""
        if self.root.exists() and any(self.root.iterdir()) and not self._marker.exists():
            raise StateError(
                f"{str(self.root)!r} is not empty and not a quickstart folder",
                hint="choose another with --data-dir",
            )
        self.out.mkdir(parents=True, exist_ok=True)
        if not self._marker.exists():
            self.remember(SavedState())

    def clean(self) -> None:
        """Removes the folder. Raises StateError for one that is not a quickstart's."""
        if not self.root.exists():
            return
        if not self._marker.exists():
            raise StateError(f"{str(self.root)!r} is not a quickstart folder; nothing was removed")
        shutil.rmtree(self.root)

    @property
    def is_new(self) -> bool:
        return not self.recall().applications

    def recall(self) -> SavedState:
        return SavedState(**json.loads(self._marker.read_text()))

    def remember(self, memory: SavedState) -> None:
        fresh = self._marker.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(memory), indent=2) + "\n")
        fresh.replace(self._marker)

    @property
    def _marker(self) -> Path:
        return self.root / MARKER
