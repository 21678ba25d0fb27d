# SPDX-License-Identifier: Apache-2.0
"""The first start."""

import asyncio
from pathlib import Path

from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.bootstrap import KEY_FILE, PASSWORD_FILE, ensure_project


async def test_of_two_first_starts_on_one_database_one_has_the_keys(
    kept: Stores, tmp_path: Path
) -> None:
    """A key file that opens nothing would send its owner looking for a fault elsewhere."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()

    await asyncio.gather(*(ensure_project(kept, folder, None, lambda: 1) for folder in folders))

    assert await kept.projects.ids() == ["default"]
    assert sorted(sorted(file.name for file in folder.iterdir()) for folder in folders) == [
        [],
        [KEY_FILE, PASSWORD_FILE],
    ]
