# SPDX-License-Identifier: Apache-2.0
"""The example of the plugin files: its files are clean, and the commands of its README run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_test_support.folder_processes import end_all_in

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
FILES = ROOT / "examples" / "01-files"
LIMIT = 280


def test_the_files_of_an_example_have_no_faults(tmp_path: Path) -> None:
    key = tmp_path / "piped.key"
    key.write_text("secret")
    piped = tmp_path / "piped.yaml"
    text = (FILES / "piped.yaml").read_text()
    piped.write_text(text.replace("/tmp/pipecd-files/piped.key", str(key)))  # noqa: S108 - the README's

    done = subprocess.run(
        [BIN / "pipectl", "lint", piped, FILES / "repository", "--piped", piped],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 files, 0 errors, 0 warnings" in done.stdout + done.stderr


@pytest.mark.timeout(LIMIT + 20)  # a control plane, a piped twice, three deployments
def test_the_commands_of_the_files_example_work_from_the_top_of_a_checkout(tmp_path: Path) -> None:
    place = {"/tmp/pipecd-files": str(tmp_path / "there"), ":8080": f":{pick_port()}"}  # noqa: S108
    folder = tmp_path / "examples" / FILES.name
    shutil.copytree(FILES, folder)
    for name in ("README.md", "piped.yaml"):
        text = (folder / name).read_text()
        for old, new in place.items():
            text = text.replace(old, new)
        (folder / name).write_text(text)
    blocks = re.findall(r"```sh\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)

    process = subprocess.Popen(
        ["bash", "-emc", "\n".join(blocks)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
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
    assert output.count("<h1>one</h1>\n\n") >= 2, "the first page, in all directories"
    assert "1 of 3 deploy targets: canary" in output
    assert "in sync: what runs is what was deployed" in output
    assert "-<h1>by hand</h1>" in output, "the drift"
    assert "+<h1>three</h1>" in output, "the preview"
    assert not (tmp_path / "there").exists()
