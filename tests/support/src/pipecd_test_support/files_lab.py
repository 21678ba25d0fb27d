# SPDX-License-Identifier: Apache-2.0
"""A commit's folder, directories to deploy to, and a harness of the files plugin between them."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from pipecd_plugin_files.plugin import Files

from pipecd_sdk import replace
from pipecd_sdk.testing import NOON, StageHarness, deploy_target, example_deployment


class FilesLab:
    """Makes commits and harnesses, and looks at what became of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        files: dict[str, str] | Path,
        *,
        number: int = 1,
        targets: dict[str, dict[str, str]] | None = None,
        config: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
        running: Path | None = None,
        application: str = "application-1",
    ) -> StageHarness[Files]:
        """A harness for a deployment of these files to the named targets."""
        if isinstance(files, Path):
            folder = files
        else:
            folder = self.write(self.folder / f"commit-{number}", files)
        example = example_deployment()
        return StageHarness(
            Files(),
            config={"flush": False, **(config or {})},
            options=options,
            directory=folder,
            running_directory=running,
            deployment=replace(
                example,
                id=f"{number:08x}-deployment",
                application_id=application,
                commit=replace(example.commit, hash=f"{number:040x}"),
                created_at=NOON + timedelta(minutes=number),
            ),
            targets=[
                deploy_target(Files, name, {"path": str(self.folder / name)}, labels=labels)
                for name, labels in (targets or {"a": {}}).items()
            ],
        )

    def write(self, folder: Path, files: dict[str, str]) -> Path:
        """Make a folder with these files."""
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o644)
        return folder

    def deployed(self, directory: Path) -> dict[str, str]:
        """What somebody who looks through the link finds: paths to contents."""
        current = (directory / "current").resolve(strict=True)
        return {
            str(file.relative_to(current)): file.read_text()
            for file in current.rglob("*")
            if file.is_file()
        }
