# SPDX-License-Identifier: Apache-2.0
"""One moto server for all tests of this folder that run in one process, a function for each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipecd_test_support.aws.lab import AwsLab, run_aws_lab
from pipecd_test_support.aws.lambda_lab import LambdaLab, make_role


@pytest.fixture(scope="session")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsLab]:
    with run_aws_lab(tmp_path_factory.mktemp("aws")) as lab:
        make_role(lab)
        yield lab


@pytest.fixture
def lab(shared_lab: AwsLab, tmp_path: Path) -> LambdaLab:
    shared_lab.forget()
    return LambdaLab(shared_lab, tmp_path)
