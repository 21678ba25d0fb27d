# SPDX-License-Identifier: Apache-2.0
"""Manifests of deployed commits: which are kept, and which are read each time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk import (
    DeployTarget,
    Details,
    DetailsContext,
    LiveContext,
    LiveSnapshot,
    Preview,
    Resource,
    Source,
    Strategy,
    SyncState,
    SyncStatus,
    Version,
)
from pipecd_sdk.kit.platforms import ManifestPlugin
from pipecd_sdk.kit.rereads import MOST_KEPT
from pipecd_sdk.testing import FakeClock

TARGET = DeployTarget(name="main", labels={}, config=None)


class Menus(ManifestPlugin[str]):
    """Deploys the text of a file, and counts how often one is read."""

    def __init__(self) -> None:
        self.reads = 0

    def read_manifest(self, source: Source, target: DeployTarget | None) -> str:
        self.reads += 1
        return (source.directory / "menu.txt").read_text()

    def find_versions(self, manifest: str, targets: Sequence[DeployTarget]) -> Sequence[Version]:
        return []

    def decide_strategy(self, running: str | None, target: str) -> Strategy:
        return Strategy(summary="")

    def preview_change(self, running: str | None, target: str) -> Preview:
        return Preview(summary="", no_change=running == target)

    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        return LiveSnapshot()

    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        return SyncState(status=SyncStatus.SYNCED)

    async def open_resource(
        self, ctx: DetailsContext, target: DeployTarget, resource: Resource
    ) -> Details:
        return Details()


def look_at(
    tree: Path, *, application: str = "app", commit: str = "c1", config: str = ""
) -> LiveContext:
    """Returns what a plugin is asked with for an application in a checkout."""
    nothing: Any = None
    return LiveContext(
        application_id=application,
        application_name=application,
        piped_id="piped",
        source=Source(
            commit_hash=commit,
            application_directory=str(tree / "menus"),
            config=config.encode(),
            shared_config_directory=str(tree / ".pipe"),
        ),
        targets=[TARGET],
        clock=FakeClock(),
        tools=nothing,
        shared=nothing,
    )


def check_out(tree: Path, text: str) -> Path:
    (tree / "menus").mkdir(parents=True)
    (tree / "menus" / "menu.txt").write_text(text)
    return tree


async def test_a_commit_is_read_once_in_whatever_checkout(tmp_path: Path) -> None:
    menus = Menus()
    trees = [check_out(tmp_path / name, "soup") for name in ("a", "b")]

    found = [await menus.load_deployed(look_at(tree), TARGET) for tree in trees]

    assert (found, menus.reads) == (["soup", "soup"], 1)


async def test_without_a_commit_two_checkouts_are_not_taken_for_one(tmp_path: Path) -> None:
    menus = Menus()
    trees = [check_out(tmp_path / text, text) for text in ("soup", "salad")]

    found = [await menus.load_deployed(look_at(tree, commit=""), TARGET) for tree in trees]

    assert found == ["soup", "salad"]


@pytest.mark.parametrize(
    "spec",
    [
        "encryption: {decryptionTargets: [menu.txt]}",
        "encryption: {DecryptionTargets: [menu.txt]}",
        "encryption: {encryptedSecrets: {pw: CLOSED}}",
        "encryptedSecrets: {pw: CLOSED}",
    ],
)
async def test_where_an_application_has_secrets_nothing_is_kept(tmp_path: Path, spec: str) -> None:
    menus = Menus()
    ctx = look_at(check_out(tmp_path / "a", "soup"), config=f"spec: {{{spec}}}")

    for _ in range(2):
        await menus.load_deployed(ctx, TARGET)

    assert menus.reads == 2


async def test_more_applications_than_fit_are_still_mostly_read_once(tmp_path: Path) -> None:
    """They are asked for in turn: whoever gave up the oldest would read all of them each time."""
    menus = Menus()
    tree = check_out(tmp_path / "a", "soup")
    contexts = [look_at(tree, application=str(each)) for each in range(MOST_KEPT + 100)]
    for ctx in contexts:
        await menus.load_deployed(ctx, TARGET)
    menus.reads = 0

    for ctx in contexts:
        await menus.load_deployed(ctx, TARGET)

    assert 0 < menus.reads < len(contexts) // 2
