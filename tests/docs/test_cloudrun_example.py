# SPDX-License-Identifier: Apache-2.0
"""The example of Cloud Run: its files are clean, and the commands of its README run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_test_support.folder_processes import end_all_in
from pipecd_test_support.google_cloud.fake_cloud_run import FakeCloudRun
from pipecd_test_support.google_cloud.key_files import write_key_file

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
EXAMPLE = ROOT / "examples" / "06-cloud-run"
LIMIT = 200


def test_the_files_of_the_cloud_run_example_have_no_faults(tmp_path: Path) -> None:
    key = tmp_path / "piped.key"
    key.write_text("secret")
    piped = tmp_path / "piped.yaml"
    text = (EXAMPLE / "piped.yaml").read_text()
    piped.write_text(text.replace("/tmp/pipecd-cloud-run/piped.key", str(key)))  # noqa: S108 - the README's

    done = subprocess.run(
        [BIN / "pipectl", "lint", piped, EXAMPLE / "repository/shop/app.pipecd.yaml"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 files, 0 errors, 0 warnings" in done.stdout + done.stderr


@pytest.mark.timeout(LIMIT + 20)  # a control plane, a piped, two deployments
def test_the_commands_of_the_cloud_run_example_work(tmp_path: Path) -> None:
    place = {"/tmp/pipecd-cloud-run": str(tmp_path / "there"), ":8080": f":{pick_port()}"}  # noqa: S108
    folder = tmp_path / "examples" / EXAMPLE.name
    shutil.copytree(EXAMPLE, folder)
    with FakeCloudRun() as cloud:
        cloud.polls_until_ready = 1
        write_key_file(tmp_path / "key.json", cloud.token_address)
        place["region: asia"] = f"endpoint: {cloud.url}\n            region: asia"
        for name in ("README.md", "piped.yaml"):
            text = (folder / name).read_text()
            for old, new in place.items():
                text = text.replace(old, new)
            (folder / name).write_text(text)
        blocks = re.findall(r"```sh\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)

        process = subprocess.Popen(
            ["bash", "-emc", "\n".join(blocks)],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LIMIT)
        finally:
            end_all_in(tmp_path)
        service = cloud.state.services["shop"]

    assert process.returncode == 0, output
    assert service["template"]["containers"][0]["env"] == [{"name": "VERSION", "value": "two"}]
    assert [each["percent"] for each in service["traffic"]] == [100]
    assert service["traffic"][0]["tag"] == "canary"
    assert "in sync" in output
