# SPDX-License-Identifier: Apache-2.0
"""The sources of the tests of planning and running, and those of a real repository, are alike."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pipecd_piped.git import Repository
from pipecd_piped.source import SourceProvider
from pipecd_test_support.contracts import SourcesCase, SourcesContract
from pipecd_test_support.git_remote import GitRemote
from pipecd_test_support.piped_parts import FakeSources, git_path

CONFIG = "app.pipecd.yaml"
OLDER = '{"apiVersion":"pipecd.dev/v1beta1","kind":"Application","spec":{"name":"older"}}'
NEWER = '{"apiVersion":"pipecd.dev/v1beta1","kind":"Application","spec":{"name":"newer"}}'


class TestFakeSources(SourcesContract):
    @pytest.fixture
    def case(self) -> SourcesCase:
        older, newer = "a" * 40, "b" * 40
        return SourcesCase(
            sources=FakeSources(
                {older: OLDER, newer: NEWER}, changed=[f"apps/web/{CONFIG}", "base/x"]
            ),
            git_path=git_path(),
            older=older,
            newer=newer,
            older_file=OLDER,
            newer_file=NEWER,
        )


class TestSourcesOfARepository(SourcesContract):
    @pytest.fixture
    async def case(
        self, git_remote: Callable[..., GitRemote], tmp_path: Path
    ) -> AsyncIterator[SourcesCase]:
        remote = git_remote()
        older = remote.commit({f"apps/web/{CONFIG}": OLDER, "base/x": "1"})
        newer = remote.commit({f"apps/web/{CONFIG}": NEWER, "base/x": "2"})
        folder = tmp_path / "data" / "mirrors" / "repo"
        async with (
            Repository(id="repo", remote=remote.remote, branch="main", folder=folder) as repository,
            SourceProvider(tmp_path / "data", {"repo": repository}) as sources,
        ):
            yield SourcesCase(
                sources=sources,
                git_path=git_path(),
                older=older,
                newer=newer,
                older_file=OLDER,
                newer_file=NEWER,
            )
