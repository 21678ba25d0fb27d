# SPDX-License-Identifier: Apache-2.0
"""Providers that people sign in through, served over real HTTP."""

from collections.abc import AsyncIterator

import pytest

from pipecd_controlplane.http.admin import serve_admin
from pipecd_test_support.identity_providers import (
    GitHubServer,
    OidcIssuer,
    WalkThrough,
    walk_through,
)


@pytest.fixture
async def issuer() -> AsyncIterator[OidcIssuer]:
    made = OidcIssuer()
    async with serve_admin(made.app(), "127.0.0.1", 0) as address:
        made.url = f"http://{address}"
        yield made


@pytest.fixture
async def github() -> AsyncIterator[GitHubServer]:
    made = GitHubServer()
    async with serve_admin(made.app(), "127.0.0.1", 0) as address:
        made.url = f"http://{address}"
        yield made


@pytest.fixture
def through() -> WalkThrough:
    """Walk a browser through a sign-in; answers what the last step, the way back, got."""
    return walk_through
