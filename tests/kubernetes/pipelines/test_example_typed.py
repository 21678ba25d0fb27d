# SPDX-License-Identifier: Apache-2.0
"""The commands of the Kubernetes examples' README, typed into a terminal beside a real cluster."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipecd_runtime.ports import pick_port
from pipecd_test_support import guides
from pipecd_test_support.folder_processes import end_all_in
from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.typed_terminal import TypedCommand, TypedTerminal

ROOT = Path(__file__).parents[3]
README = ROOT / "examples" / "03-kubernetes" / "README.md"
THERE = "/tmp/pipecd-kubernetes"  # noqa: S108 - what the README says
ADDRESS = "127.0.0.1:8080"
LIMIT_SECONDS = 60


@pytest.fixture
def home(namespace: Namespace, tmp_path: Path) -> Path:
    """The home of somebody whose kubectl uses this test's namespace."""
    document = yaml.safe_load(namespace.cluster.kubeconfig.read_text())
    for each in document["contexts"]:
        each["context"]["namespace"] = namespace.name
    folder = tmp_path / "home"
    (folder / ".kube").mkdir(parents=True)
    (folder / ".kube" / "config").write_text(yaml.safe_dump(document))
    return folder


@pytest.fixture
def terminal(home: Path, tmp_path: Path) -> Iterator[TypedTerminal]:
    """At the top of the checkout; what is started there ends with the test."""
    kept = {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**kept, "PATH": path, "HOME": str(home), "LANG": "C.UTF-8"}
    try:
        with TypedTerminal(ROOT, environment) as opened:
            yield opened
    finally:
        end_all_in(tmp_path)


def read_commands(folder: Path, port: int) -> list[str]:
    """What the README says to type, with a folder and a port that are free here."""
    typed = [
        block.text.replace(THERE, str(folder)).replace(ADDRESS, f"127.0.0.1:{port}")
        for block in guides.read_blocks(README.read_text())
        if block.kind == "sh"
    ]
    # So has its file for piped, which was just copied.
    there, here = f"s#{THERE}#{folder}#g", f"s#{ADDRESS}#127.0.0.1:{port}#"
    edit = f"sed -i -e '{there}' -e '{here}' piped.yaml\n"
    enter = f"cd {folder}\n"
    assert enter in typed[0]
    return [typed[0].replace(enter, enter + edit), *typed[1:]]


def type_until_it_works(terminal: TypedTerminal, line: str) -> TypedCommand:
    """Type a command again until it ends well, as somebody does who waits for something."""
    over = time.monotonic() + LIMIT_SECONDS
    while True:
        (done,) = terminal.type_block(line)
        if done.code == 0:
            return done
        assert time.monotonic() < over, done.screen
        time.sleep(0.2)  # between looks at another process


def test_the_commands_of_the_readme_deploy_a_canary(
    terminal: TypedTerminal, namespace: Namespace, tmp_path: Path
) -> None:
    blocks = read_commands(tmp_path / "example", pick_port())
    waits = "pipectl deployment approve canary"
    for block in blocks:
        before, approval, after = block.partition(waits)
        for done in terminal.type_block(before):
            assert done.code == 0, f"{done.command}\n{done.screen}"
        if not approval:
            continue
        rest, _, after = after.partition("\n")
        namespace.wait_workload("Deployment", "canary-canary")
        type_until_it_works(terminal, waits + rest)
        for done in terminal.type_block(after):
            assert done.code == 0, f"{done.command}\n{done.screen}"

    found = namespace.get("apps/v1", "Deployment", "canary")
    assert found is not None
    images = [each["image"] for each in found["spec"]["template"]["spec"]["containers"]]
    assert images == ["registry.example.com/web:v2"]
    assert namespace.get("apps/v1", "Deployment", "canary-canary") is None
