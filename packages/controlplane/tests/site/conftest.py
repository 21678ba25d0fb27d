# SPDX-License-Identifier: Apache-2.0
"""A control plane with settings of the test's own, and a client for its pages."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx2
import pytest

from pipecd_test_support.served_settings import PlaneWith, serving_with


@pytest.fixture
def plane_with(tmp_path: Path) -> PlaneWith:
    return partial(serving_with, tmp_path / "data")


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as made:
        yield made
