# SPDX-License-Identifier: Apache-2.0
"""One moto server for all tests of this folder that run in one process, a cluster for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipecd_test_support.aws.ecs_lab import EcsLab
from pipecd_test_support.aws.lab import AwsLab, run_aws_lab


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsLab]:
    with run_aws_lab(tmp_path_factory.mktemp("aws")) as lab:
        yield lab


@pytest.fixture
def lab(aws: AwsLab, tmp_path: Path) -> EcsLab:
    aws.forget()
    aws.keep_draining(drains=False)
    return EcsLab(aws, tmp_path)
