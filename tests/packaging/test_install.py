# SPDX-License-Identifier: Apache-2.0
"""`tools/install.py`: only what is asked for, with progress, and a sentence when it fails."""

import hashlib
import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipecd_test_support.web_server import Answer, WebServer

TOOL = Path(__file__).parents[2] / "tools" / "install.py"
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "our-part"
version = "1.0"
"""
BACKEND = """
import pathlib
def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    made = pathlib.Path(__file__).with_name("our_part-1.0-py3-none-any.whl")
    pathlib.Path(wheel_directory, made.name).write_bytes(made.read_bytes())
    return made.name
"""


def wheel(name: str) -> bytes:
    """A distribution with one module that holds its name."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": f"NAME = {name!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return made.getvalue()


class Checkout:
    """A checkout with one distribution of its own, and an index with two of others."""

    def __init__(self, root: Path, index: WebServer) -> None:
        self.root = root
        self._index = index
        for part in ("packages/part", "plugins", "tests/support"):
            (root / part).mkdir(parents=True)
        ours = root / "packages" / "part"
        (ours / "pyproject.toml").write_text(PROJECT)
        (ours / "backend.py").write_text(BACKEND)
        (ours / "our_part-1.0-py3-none-any.whl").write_bytes(wheel("our_part"))
        for file, name in (("requirements.lock", "runs"), ("requirements-dev.lock", "checks")):
            content = wheel(name)
            digest = hashlib.sha256(content).hexdigest()
            (root / file).write_text(f"{name}==1.0 \\\n    --hash=sha256:{digest}\n")
            page = f'<a href="/{name}-1.0-py3-none-any.whl">{name}-1.0-py3-none-any.whl</a>'
            html = {"Content-Type": "text/html"}
            index.give(f"/simple/{name}/", Answer(body=page.encode(), headers=html))
            index.give(f"/{name}-1.0-py3-none-any.whl", Answer(body=content))

    def change_file(self, name: str) -> None:
        """Let the index have another file than the one that is pinned."""
        self._index.give(f"/{name}-1.0-py3-none-any.whl", Answer(body=wheel("other")))

    def install(self, *options: str) -> subprocess.CompletedProcess[str]:
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"{self._index.url}/simple"}
        return subprocess.run(
            [sys.executable, TOOL, "env", "--root", self.root, *options],
            cwd=self.root,
            env=os.environ | pip | {"PIP_CACHE_DIR": str(self.root / "cache")},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    def can_import(self, name: str) -> bool:
        python = self.root / "env" / "bin" / "python"
        return subprocess.run([python, "-c", f"import {name}"], stderr=-3).returncode == 0  # noqa: PLW1510


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    with WebServer() as index:
        yield Checkout(tmp_path, index)


def test_what_only_developers_need_is_left_out_until_they_ask(checkout: Checkout) -> None:
    done = checkout.install()

    assert done.returncode == 0, done.stdout + done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first == "Installing what running needs into env"
    assert re.fullmatch(r"Installed 1 packages and 1 of PipeCD's own in \d+ s", last)
    assert checkout.can_import("runs")
    assert checkout.can_import("our_part")
    assert not checkout.can_import("checks")


def test_a_file_that_was_changed_at_the_index_is_refused_with_a_sentence(
    checkout: Checkout,
) -> None:
    checkout.change_file("runs")

    done = checkout.install()

    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert done.stderr.endswith("then run it again, it goes on from here\n")
    assert "Traceback" not in done.stderr
    assert not checkout.can_import("other")
