# SPDX-License-Identifier: Apache-2.0
"""A browser, and projects whose people sign in."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from pipecd_test_support.sign_in_site import (
    ReadError,
    SignInSite,
    SiteWith,
    read_error,
    serving_site,
)


@pytest.fixture
def site_with(store_kind: str, tmp_path: Path) -> SiteWith:
    """A site with settings of its own: `async with site_with(public_url=…) as site`."""
    return partial(serving_site, tmp_path / "data")


@pytest.fixture
async def site(site_with: SiteWith) -> AsyncIterator[SignInSite]:
    async with site_with() as made:
        await made.project()
        yield made


@pytest.fixture
def error_of() -> ReadError:
    """What the page would show: errors of a sign-in travel in a cookie."""
    return read_error
