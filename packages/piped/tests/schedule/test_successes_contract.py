# SPDX-License-Identifier: Apache-2.0
"""The last successes of the tests of runs, and those of the control plane's state, are alike."""

from typing import cast

import pytest

from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.schedule.successes import LastSuccessful
from pipecd_test_support.contracts import SuccessesCase, SuccessesContract
from pipecd_test_support.piped_parts import FakeSuccesses
from pipecd_wire.model.application_pb2 import Application, ApplicationDeploymentReference

KNOWN = ApplicationDeploymentReference(deployment_id="d1")


class TestFakeSuccesses(SuccessesContract):
    @pytest.fixture
    def case(self) -> SuccessesCase:
        successes = FakeSuccesses()
        successes.known["web"] = KNOWN
        return SuccessesCase(successes=successes, deployed="web", known=KNOWN, new="shop")


class TestSuccessesOfPushedApplications(SuccessesContract):
    @pytest.fixture
    def case(self) -> SuccessesCase:
        applications = {
            "web": Application(id="web", most_recently_successful_deployment=KNOWN),
            "shop": Application(id="shop"),
        }
        nobody = cast("ControlPlane", None)  # it is called for other applications alone
        return SuccessesCase(
            successes=LastSuccessful(applications, nobody), deployed="web", known=KNOWN, new="shop"
        )
