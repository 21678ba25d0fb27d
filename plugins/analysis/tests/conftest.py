# SPDX-License-Identifier: Apache-2.0
"""What the tests of this plugin share."""

from collections.abc import Iterator

import pytest

from pipecd_test_support.web_server import WebServer


@pytest.fixture
def web() -> Iterator[WebServer]:
    """A web server of this machine, whose answers the test gives."""
    with WebServer() as server:
        yield server
