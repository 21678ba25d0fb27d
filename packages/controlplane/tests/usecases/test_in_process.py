# SPDX-License-Identifier: Apache-2.0
"""The memory of one process keeps what a shared state promises."""

from pathlib import Path

import pytest

from pipecd_controlplane.usecases.in_process import InProcessState
from pipecd_test_support.shared_state_contract import Replicas, SharedStateContract


class TestInProcess(SharedStateContract):
    @pytest.fixture
    def replicas(self, tmp_path: Path) -> Replicas:
        state = InProcessState(tmp_path)
        return state, state
