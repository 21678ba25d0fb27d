# SPDX-License-Identifier: Apache-2.0
"""One moto server for all tests of this folder that run in one process."""

from collections.abc import Iterator

import pytest

from pipecd_test_support.aws.lab import AwsLab, run_aws_lab


@pytest.fixture(scope="session")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsLab]:
    with run_aws_lab(tmp_path_factory.mktemp("aws")) as lab:
        lab.ecs.create_cluster(clusterName="main")
        yield lab


@pytest.fixture
def lab(shared_lab: AwsLab) -> AwsLab:
    shared_lab.forget()
    return shared_lab
