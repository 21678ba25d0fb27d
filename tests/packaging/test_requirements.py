# SPDX-License-Identifier: Apache-2.0
"""What gets installed: everything pinned with hashes, nothing without need, little for plugins."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECTS: dict[str, dict[str, Any]] = {
    (document := tomllib.loads(file.read_text()))["project"]["name"]: document
    for folder in ("packages", "plugins")
    for file in sorted((ROOT / folder).glob("*/pyproject.toml"))
}
PYTHONS = ("3.11", "3.12", "3.13")
SDK_NEEDS = {"grpcio", "protobuf", "msgspec", "pyyaml"}


def written(name: str, *extras: str) -> list[Requirement]:
    """What a distribution of ours says that it needs, with these extras."""
    project = PROJECTS[name]["project"]
    optional = project.get("optional-dependencies", {})
    texts = chain(project["dependencies"], *(optional[extra] for extra in extras))
    return [Requirement(text) for text in texts]


def written_for_running() -> list[Requirement]:
    """What running from a checkout needs: with all extras, and to be installed from its source."""
    found = [Requirement("editables")]
    for name, document in PROJECTS.items():
        found += written(name, *document["project"].get("optional-dependencies", {}))
        found += map(Requirement, document["build-system"]["requires"])
    return [each for each in found if each.name not in PROJECTS]


def all_written() -> list[Requirement]:
    """What anything here needs: to run, to be built, to be tested."""
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    developing = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return [*written_for_running(), *developing]


def third_parties(name: str, *extras: str) -> set[str]:
    """What a distribution of ours makes pip install, as far as ours say so."""
    found: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(name, frozenset(extras))]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        for wanted in written(each[0], *each[1]):
            if wanted.name in PROJECTS:
                waiting.append((wanted.name, frozenset(wanted.extras)))
            else:
                found.add(canonicalize_name(wanted.name))
    return found


def needed(written: Iterable[Requirement]) -> set[str]:
    """All third parties that are needed, those of third parties included, on any Python of ours."""
    found: set[str] = set()
    waiting = [(each.name, frozenset(each.extras)) for each in written]
    while waiting:
        name, extras = waiting.pop()
        key = canonicalize_name(name)
        if key in found and not extras:
            continue
        found.add(key)
        for text in distribution(name).requires or ():
            wanted = Requirement(text)
            if is_wanted(wanted, extras):
                waiting.append((wanted.name, frozenset(wanted.extras)))
    return found


def is_wanted(wanted: Requirement, extras: frozenset[str]) -> bool:
    marker = wanted.marker
    return marker is None or any(
        marker.evaluate({"python_version": python, "python_full_version": f"{python}.1", **extra})
        for python in PYTHONS
        for extra in ({"extra": each} for each in ("", *extras))
    )


def pins(file: str) -> dict[str, str]:
    text = re.sub(r"\\\n\s*", " ", (ROOT / file).read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in lines}


RUNNING = pins("requirements.lock")
DEVELOPING = pins("requirements-dev.lock")
LOCKED = RUNNING | DEVELOPING


def test_every_requirement_is_pinned_to_a_version_that_it_allows() -> None:
    for wanted in all_written():
        version = LOCKED[canonicalize_name(wanted.name)].split()[0]
        assert wanted.specifier.contains(version), wanted


def test_every_pin_has_hashes_and_no_address() -> None:
    for name, pin in LOCKED.items():
        version, *hashes = pin.split()
        assert hashes, name
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), name
        assert re.fullmatch(r"[0-9A-Za-z.]+", version), name
    for file in ("requirements.lock", "requirements-dev.lock"):
        assert "://" not in (ROOT / file).read_text()


def test_the_locks_have_the_versions_of_the_constraints() -> None:
    for lock, constraints in (
        (RUNNING, "constraints.txt"),
        (DEVELOPING, "constraints-dev.txt"),
    ):
        assert {name: pin.split()[0] for name, pin in lock.items()} == pins(constraints)


def test_all_that_is_needed_is_pinned_and_nothing_else() -> None:
    assert LOCKED.keys() == needed(all_written())


def test_running_installs_no_tool_of_developers() -> None:
    """Test tools are more than half of all that there is, and a newcomer waits for it."""
    assert RUNNING.keys() == needed(written_for_running())
    assert not RUNNING.keys() & DEVELOPING.keys()
    assert {"pytest", "mypy", "ruff"} <= DEVELOPING.keys()


def test_the_sdk_alone_needs_four_packages() -> None:
    assert third_parties("pipecd-sdk") == SDK_NEEDS


@pytest.mark.parametrize("name", ["wait", "waitapproval", "scriptrun", "dummy"])
def test_a_plugin_needs_no_more_than_the_sdk(name: str) -> None:
    assert third_parties(f"pipecd-plugin-{name}") == SDK_NEEDS


@pytest.mark.parametrize("name", ["pipecd-piped", "pipecd-controlplane", "pipecd-pipectl"])
def test_a_program_brings_what_the_model_needs_for_it(name: str) -> None:
    assert third_parties(name) >= SDK_NEEDS | {"cryptography", "google-re2"}


BLOCKED = """
import importlib.abc, sys

ALLOWED = {"pipecd_sdk", "pipecd_model", "pipecd_wire", "pipecd_runtime", "pipecd_plugin_wait"}
ALLOWED |= {"grpc", "google", "msgspec", "yaml", "_yaml"}
ALLOWED |= {"typing_extensions"}  # of grpcio itself

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ALLOWED and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def run_blocked(program: str) -> str:
    """Run a program for which only the four packages are installed."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_plugin_runs_where_only_the_four_packages_are_installed() -> None:
    shown = run_blocked(
        """
import asyncio
from pipecd_sdk.testing import NOON, FakeClock, StageHarness
from pipecd_sdk.kit import diff, shell, tools, yaml
from pipecd_plugin_wait.plugin import Wait

harness = StageHarness(Wait(), clock=FakeClock(NOON))
print(asyncio.run(harness.run("WAIT", {"duration": "5m"})).status.name)
"""
    )

    assert shown == "SUCCESS\n"


def test_every_module_of_the_sdk_can_be_imported_with_the_four_packages() -> None:
    shown = run_blocked(
        """
import importlib, pkgutil
import pipecd_sdk

for module in pkgutil.walk_packages(pipecd_sdk.__path__, "pipecd_sdk."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print("all")
"""
    )

    assert shown == "all\n"


def test_what_needs_an_extra_says_which() -> None:
    shown = run_blocked(
        """
import asyncio
from pipecd_model.errors import MissingExtraError
from pipecd_model.secrets import KeyPair, Opener
from pipecd_model.templates import render
from pipecd_sdk.kit import patterns
from pipecd_sdk.kit.web import WebClient

def tell(work, *arguments):
    try:
        work(*arguments)
    except MissingExtraError as error:
        print(f"{error} ({error.hint})")

print(render("{{ .x | upper }}", {"x": "fine"}, name="file"))
tell(patterns.matches, ["docs/**"], "docs/a.md")
tell(patterns.check, "docs/**")
tell(KeyPair.new)
tell(Opener, b"key")
tell(lambda: render('{{ regexMatch "a" "b" }}', {}, name="file"))
tell(lambda: asyncio.run(WebClient().request("GET", "https://example.com")))
"""
    )

    fine, *told = shown.splitlines()
    assert fine == "FINE"
    assert len(told) == 6
    assert told[0] == told[1] == told[4]
    assert "'google-re2', which is not installed (install pipecd-sdk[patterns]" in told[0]
    assert told[2] == told[3]
    assert "'cryptography', which is not installed (install pipecd-model[secrets]" in told[2]
    assert "'httpx2', which is not installed (install pipecd-sdk[web])" in told[5]
