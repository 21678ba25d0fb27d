# SPDX-License-Identifier: Apache-2.0
"""What piped keeps an eye on: its plugins, the records of scripts, and what it says of itself."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipecd_wire.model import deployment_pb2 as pb

LIMIT = 60


async def until(holds: Callable[[], object], site: Any) -> None:
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110 - what is waited for happens in other processes
                await asyncio.sleep(0.02)


def script(text: str) -> dict[str, Any]:
    return {"name": "SCRIPT_RUN", "with": {"run": text}}


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []


async def test_the_records_of_scripts_go_when_their_deployment_has_ended(
    site: Any, client: Any
) -> None:
    scripts = site.folder / "data" / "scripts"
    seen = site.folder / "seen"
    commit = site.commit_application("web", [script(f"ls {scripts} > {seen}"), script("exit 7")])
    site.configure("scriptrun")
    site.start()
    deployment_id = await client.deploy("web", commit)
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_FAILURE, ended.status_reason
    assert seen.read_text().split() == [deployment_id], "it had one while it ran"
    await until(lambda: names_in(scripts) == [], site)

    # What a piped could not remove any more, the next one does; of others it knows nothing.
    await site.stop()
    for name in (deployment_id, "another"):
        (scripts / name / "stage-0.0").mkdir(parents=True)
    site.start()
    await until(lambda: names_in(scripts) == ["another"], site)
