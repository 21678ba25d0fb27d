# SPDX-License-Identifier: Apache-2.0
"""From the archives alone, outside any checkout: what people install is what works.

The Python that runs the tests is tried always; the others that are here are tried by
`make test-all`.
"""

import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_test_support.clean_environment import CleanEnvironment, find_pythons

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
GUIDE = ROOT / "docs" / "installing.md"
RELEASE = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pipecd"]["release"]
RUNNING = "{}.{}".format(*sys.version_info[:2])
LIMIT_SECONDS = 60.0

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("clean environment")]


def find_python(version: str) -> Path:
    python = find_pythons((version,)).get(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    return python


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, marks=[] if each == RUNNING else [pytest.mark.slow])
        for each in RELEASE["pythons"]
    ],
)
def everything(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, dist: Path
) -> CleanEnvironment:
    """An environment with the distribution `pipecd`, for each Python."""
    made = CleanEnvironment(
        tmp_path_factory.mktemp("everything") / "here", find_python(request.param), dist
    )
    made.install("pipecd", constraints=CONSTRAINTS)
    return made


def test_one_distribution_brings_all_programs_in_one_version(everything: CleanEnvironment) -> None:
    everything.run("python", "-m", "pip", "check")
    for command in ("pipecd", "piped", "pipectl"):
        assert everything.run(command, "--version").split()[-1].endswith(RELEASE["version"])
    installed = everything.list_installed()
    ours = {version for name, version in installed.items() if name.startswith("pipecd")}
    assert ours == {RELEASE["version"]}


def test_the_quickstart_walks_its_whole_way(everything: CleanEnvironment) -> None:
    shown = everything.run("pipecd", "quickstart", "--check")

    assert re.search(r"(\d+) of \1 as expected", shown)


def test_a_plugin_goes_from_an_empty_folder_to_one_file(everything: CleanEnvironment) -> None:
    """The commands that the new folder's own README gives, in an environment of its own."""
    everything.run("pipectl", "plugin", "init", "hello")
    readme = (everything.home / "hello" / "README.md").read_text()
    [commands] = re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)

    shown = everything.run(
        "bash", "-ec", f"cd hello\n{commands}", extra={"PIP_CONSTRAINT": str(CONSTRAINTS)}
    )

    assert "1 passed" in shown
    assert re.search(r'"outcome":\s*"HOLDS"', shown)
    assert "BROKEN" not in shown
    assert (everything.home / "hello" / "hello.pyz").is_file()


class Terminals:
    """Types the blocks of the guide, each that starts a program in a terminal of its own."""

    def __init__(self, here: CleanEnvironment) -> None:
        self._here = here
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, block: str) -> Path:
        """Starts a block that goes on; returns the file with what it prints."""
        log = self._here.home / f"terminal-{len(self._started)}.log"
        # The last command replaces the shell: a signal to the one is for the other.
        *before, last = block.strip().splitlines()
        script = "\n".join([*before, f"exec {last}"])
        self._started.append(self._here.start("bash", "-ec", script, log=log))
        return log

    def wait_for(self, text: str, log: Path) -> None:
        limit = time.monotonic() + LIMIT_SECONDS
        while text not in (printed := log.read_text()):
            assert time.monotonic() < limit, f"never said {text!r}:\n{printed}"
            time.sleep(0.05)  # between looks at another process's output

    def end(self) -> None:
        for process in reversed(self._started):
            process.terminate()
            process.wait(timeout=LIMIT_SECONDS)


@pytest.fixture
def terminals(everything: CleanEnvironment) -> Iterator[Terminals]:
    opened = Terminals(everything)
    yield opened
    opened.end()


def test_server_and_agent_run_by_the_guide(
    everything: CleanEnvironment, terminals: Terminals
) -> None:
    guide = GUIDE.read_text().partition("## Server and agent by hand\n")[2].partition("\n## ")[0]
    guide = guide.replace("127.0.0.1:8080", f"127.0.0.1:{pick_port()}")
    install, server, agent, look = re.findall(r"```sh\n(.*?)```", guide, re.DOTALL)
    # What the guide installs is what this environment has.
    assert install.splitlines()[-1] == "pip install --quiet pipecd"
    (everything.home / "pipecd").symlink_to(everything.folder / "venv")

    terminals.wait_for("listening on", terminals.start(server))
    terminals.wait_for("piped.connected", terminals.start(agent))
    limit = time.monotonic() + LIMIT_SECONDS
    while True:
        shown = everything.run("bash", "-ec", look)
        if "scriptrun, wait, waitapproval" in shown and "ONLINE" in shown:
            break
        assert time.monotonic() < limit, shown
        time.sleep(0.2)  # between looks at another process's state


def test_the_sdk_alone_brings_four_packages(tmp_path: Path, dist: Path) -> None:
    """What people who write plugins install must fit beside whatever else they have."""
    alone = CleanEnvironment(tmp_path / "alone", find_python(RUNNING), dist)
    before = alone.list_installed().keys()
    alone.install("pipecd-sdk", constraints=CONSTRAINTS)

    ours = {"pipecd-sdk", "pipecd-model", "pipecd-runtime", "pipecd-wire"}
    theirs = {"grpcio", "protobuf", "msgspec", "pyyaml"}
    of_grpcio = {"typing_extensions"}
    assert alone.list_installed().keys() - before == ours | theirs | of_grpcio
    alone.run("python", "-c", "import pipecd_sdk, pipecd_sdk.testing, pipecd_sdk.conformance")


def commands_of(heading: str) -> list[str]:
    """The blocks of commands under a heading of the guide."""
    part = GUIDE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", part, re.DOTALL)


@pytest.mark.slow
def test_an_installer_of_applications_gives_all_commands(tmp_path: Path, dist: Path) -> None:
    """`pipx` offers the commands of the one distribution that it is told."""
    here = CleanEnvironment(tmp_path / "here", find_python(RUNNING), dist)
    here.install("pipx")
    [commands] = commands_of("For one person")
    install, quickstart = commands.splitlines()
    programs = here.home / "programs"
    places = {"PIPX_HOME": str(here.home / "pipx"), "PIPX_BIN_DIR": str(programs)}

    here.run("bash", "-ec", install, extra={**places, "PIP_CONSTRAINT": str(CONSTRAINTS)})

    assert {each.name for each in programs.iterdir()} == {"pipecd", "piped", "pipectl"}
    shown = here.run("bash", "-ec", f"PATH={programs}:$PATH\n{quickstart} --check")
    assert re.search(r"(\d+) of \1 as expected", shown)


@pytest.mark.slow
def test_wheels_that_were_carried_over_install_without_a_network(
    tmp_path: Path, dist: Path
) -> None:
    here = CleanEnvironment(tmp_path / "here", find_python(RUNNING), dist)
    fetch, install = commands_of("Without a network")
    here.run("bash", "-ec", fetch, extra={"PIP_CONSTRAINT": str(CONSTRAINTS)})

    nowhere = {"PIP_FIND_LINKS": "", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    here.run("bash", "-ec", install, extra=nowhere)

    assert here.run("pipecd/bin/pipecd", "--version").strip().endswith(RELEASE["version"])
