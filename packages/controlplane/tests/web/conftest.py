# SPDX-License-Identifier: Apache-2.0
"""People with a session, who call as the web client does."""

from functools import partial

import pytest

from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.web_person import SignIn, WebPerson, sign_in


@pytest.fixture
def person(plane: ServedControlPlane) -> SignIn:
    """`await person("Viewer")`: somebody with this role, in the project that tests use."""
    return partial(sign_in, plane)


@pytest.fixture
async def admin(person: SignIn) -> WebPerson:
    return await person("Admin")
