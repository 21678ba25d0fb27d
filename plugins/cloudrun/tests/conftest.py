# SPDX-License-Identifier: Apache-2.0
"""A fake Cloud Run for each test, and a lab that deploys to it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pipecd_test_support.google_cloud.cloud_run_lab import CloudRunLab
from pipecd_test_support.google_cloud.fake_cloud_run import FakeCloudRun


@pytest.fixture
def cloud() -> Iterator[FakeCloudRun]:
    with FakeCloudRun() as server:
        yield server


@pytest.fixture
async def lab(tmp_path: Path, cloud: FakeCloudRun) -> AsyncIterator[CloudRunLab]:
    made = CloudRunLab(tmp_path, cloud)
    yield made
    await made.plugin.clouds.close()
