# SPDX-License-Identifier: Apache-2.0
"""The example deploys as it is written; its account is moto's."""

import shutil
from pathlib import Path

import pytest

from pipecd_test_support.aws.lambda_lab import LambdaLab, succeeded

pytestmark = pytest.mark.xdist_group("lambda")

EXAMPLE = Path(__file__).parents[3] / "examples/08-lambda/repository/shop"


async def test_the_example_deploys(lab: LambdaLab) -> None:
    shutil.copytree(EXAMPLE, lab.folder / "example")
    lab.name = "shop"
    harness = lab.deploy("example", options={"input": {"alias": "Service"}})

    assert succeeded(await harness.run("LAMBDA_CANARY_ROLLOUT", {}))
    assert succeeded(await harness.run("LAMBDA_PROMOTE", {"percent": 100}, index=1))

    assert lab.read_alias() == {"1": 1.0}
    assert lab.read_state()["configuration"]["TracingConfig"] == {"Mode": "Active"}
