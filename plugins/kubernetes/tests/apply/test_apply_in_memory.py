# SPDX-License-Identifier: Apache-2.0
"""The contract of applying, on the cluster in memory."""

import pytest

from pipecd_test_support.apply_contract import ApplyContract
from pipecd_test_support.fake_cluster import FakeCluster


class TestApplyInMemory(ApplyContract):
    @pytest.fixture
    def client(self) -> FakeCluster:
        return FakeCluster()

    @pytest.fixture
    def space(self) -> str:
        return "default"
