# SPDX-License-Identifier: Apache-2.0
"""Tests with a real cluster: `make test-kubernetes`."""

from pathlib import Path

import pytest

from pipecd_test_support.kubernetes.fixtures import (
    cluster,
    faulty_api_server,
    namespace,
    second_cluster,
    second_namespace,
    tools,
)

__all__ = [
    "cluster",
    "faulty_api_server",
    "namespace",
    "second_cluster",
    "second_namespace",
    "tools",
]

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.kubernetes)
