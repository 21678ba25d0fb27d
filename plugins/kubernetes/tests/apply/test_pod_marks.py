# SPDX-License-Identifier: Apache-2.0
"""Pods are replaced when their configuration changes, and for no other reason."""

from typing import Any

import pytest
from pipecd_plugin_kubernetes.apply.pod_marks import (
    PodMark,
    PodMarks,
    choose_mark,
    read_mark,
    write_mark,
)
from pipecd_plugin_kubernetes.manifest import Manifest

HASH = PodMark(config_hash="h")


def workload(mark: PodMark = HASH, digest: str = "") -> dict[str, Any]:
    body: dict[str, Any] = {"kind": "Deployment", "metadata": {"name": "web", "annotations": {}}}
    if digest:
        body["metadata"]["annotations"]["pipecd.dev/config-digest"] = digest
    write_mark(body, mark)
    return body


@pytest.mark.parametrize(
    ("live", "digest", "is_unchanged", "expected"),
    [
        # Upstream's, without stringData: the hash tells everything.
        (workload(), "h", False, HASH),
        (workload(PodMark(config_hash="old")), "h", False, HASH),
        # Upstream's, with stringData: only who has looked can tell.
        (workload(), "d", True, HASH),
        (workload(), "d", False, PodMark(config_hash="h", restarted_for="d")),
        # Somebody else's, without any mark.
        (workload(PodMark()), "h", True, PodMark()),
        (workload(PodMark()), "h", False, HASH),
        # Ours: the digest tells, whatever was looked at.
        (workload(HASH, "d"), "d", False, HASH),
        (workload(HASH, "e"), "d", True, PodMark(config_hash="h", restarted_for="d")),
        (workload(PodMark(), "d"), "d", False, PodMark()),
        (workload(PodMark(), "e"), "d", False, HASH),
        (
            workload(PodMark(config_hash="h", restarted_for="x"), "d"),
            "d",
            False,
            PodMark(config_hash="h", restarted_for="x"),
        ),
        (
            workload(PodMark(config_hash="h", restarted_for="x"), "e"),
            "d",
            False,
            PodMark(config_hash="h", restarted_for="d"),
        ),
        # Upstream has deployed in between, and the digest was left.
        (workload(PodMark(config_hash="old", restarted_for="x"), "d"), "d", False, HASH),
        # Its stringData is gone: the hash is the same, what pods read is not.
        (workload(HASH, "d"), "h", False, PodMark(config_hash="h", restarted_for="h")),
        # Its pods use nothing any more.
        (workload(HASH, "d"), "", False, PodMark()),
    ],
)
def test_marks_change_only_with_the_configuration(
    live: dict[str, Any], digest: str, is_unchanged: bool, expected: PodMark
) -> None:
    body = workload(HASH if digest else PodMark(), digest)
    assert choose_mark(body, live, is_unchanged=is_unchanged) == expected


async def test_a_mark_that_git_cannot_tell_is_noted_before_it_is_replaced() -> None:
    noted: list[tuple[str, PodMark]] = []

    async def keep(key: str, mark: PodMark) -> None:
        noted.append((key, mark))

    marks = PodMarks(keep=keep)
    manifest = Manifest(workload(HASH, "d"))
    for live in (workload(HASH, "d"), workload(PodMark(config_hash="old"), "e")):
        await marks.settle(manifest, manifest.copy().body, live)
    assert noted == [], "the hash of the earlier commit is computed from its manifests"

    body = manifest.copy().body
    await marks.settle(manifest, body, workload(HASH, "e"))
    assert noted == [(":deployment::web", HASH)]
    assert read_mark(body) == PodMark(config_hash="h", restarted_for="d")


async def test_a_rollback_writes_what_was_noted_and_leaves_what_was_not_touched() -> None:
    manifest = Manifest(workload(HASH, "d"))
    body = manifest.copy().body
    await PodMarks(is_rollback=True).settle(manifest, body, workload(HASH))
    assert read_mark(body) == HASH

    body = manifest.copy().body
    restored = {":deployment::web": PodMark()}
    await PodMarks(is_rollback=True, restored=restored).settle(manifest, body, workload(HASH, "e"))
    assert read_mark(body) == PodMark()
