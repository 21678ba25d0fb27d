# SPDX-License-Identifier: Apache-2.0
"""The commands of the plugin guide, run one after the other in an empty folder."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "writing-a-plugin.md"


def environment(folder: Path) -> dict[str, str]:
    """An environment of its own that sees what is installed here, and leaves it alone."""
    venv.create(folder, with_pip=False, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    here = sysconfig.get_path("purelib")
    # `addsitedir` and not a plain path: editable distributions are found by their own .pth files.
    (packages / "here.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    beside = Path(sys.executable).parent
    # The build backend is installed here too: nothing is fetched.
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    return {**os.environ, **pip, "PATH": f"{folder / 'bin'}:{beside}:{os.environ['PATH']}"}


@pytest.mark.timeout(900)  # it builds, installs and walks all cases twice
def test_the_guides_commands_work_from_an_empty_folder(tmp_path: Path) -> None:
    commands = "\n".join(re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    here = tmp_path / "here"
    here.mkdir()
    variables = environment(tmp_path / "venv")

    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=here,
        env={**variables, "PIPECD_PLUGIN_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert re.search(r"(\d+) of \1 promises hold", done.stdout)
    shipped = subprocess.run(
        ["pipectl", "plugin", "test", "--profile", "conformance.yaml", "--", "./hello.pyz"],
        cwd=here / "hello",
        env={**os.environ, "PATH": variables["PATH"], "PIPECD_PLUGIN_CACHE": str(tmp_path / "c")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert shipped.returncode == 0, shipped.stdout + shipped.stderr


def test_the_guides_code_is_the_code_of_the_folder(tmp_path: Path) -> None:
    pipectl = Path(sys.executable).parent / "pipectl"
    subprocess.run(
        [pipectl, "plugin", "init", "hello"], cwd=tmp_path, check=True, timeout=60, stdout=-3
    )
    made = "".join(file.read_text() for file in (tmp_path / "hello").rglob("*.py"))

    shown = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)

    assert shown
    for code in shown:
        assert code in made
