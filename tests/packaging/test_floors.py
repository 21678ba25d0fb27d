# SPDX-License-Identifier: Apache-2.0
"""The lowest versions that we name for other people's distributions are versions that work."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from pipecd_test_support.clean_environment import CleanEnvironment, find_pythons

ROOT = Path(__file__).parents[2]
PROJECTS = [
    tomllib.loads(file.read_text())["project"]
    for folder in ("packages", "plugins")
    for file in sorted((ROOT / folder).glob("*/pyproject.toml"))
]
RELEASE = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pipecd"]["release"]
WIRE = ROOT / "packages" / "wire" / "src" / "pipecd_wire"


def list_floors() -> dict[NormalizedName, set[str]]:
    """Returns the floors of each distribution that is not ours, by all who need it."""
    floors: dict[NormalizedName, set[str]] = {}
    for project in PROJECTS:
        extras = project.get("optional-dependencies", {}).values()
        for text in [*project["dependencies"], *(each for extra in extras for each in extra)]:
            wanted = Requirement(text)
            if not wanted.name.startswith("pipecd"):
                [floor] = wanted.specifier
                floors.setdefault(canonicalize_name(wanted.name), set()).add(floor.version)
    return floors


def test_all_who_need_a_distribution_name_the_same_floor() -> None:
    assert {name: each for name, each in list_floors().items() if len(each) > 1} == {}


def test_the_generated_code_takes_the_floor_of_its_runtime() -> None:
    """It refuses a runtime that is older than its generator."""
    [protobuf], [grpcio] = (
        list_floors()[canonicalize_name(name)] for name in ("protobuf", "grpcio")
    )
    for file in sorted(WIRE.rglob("*_pb2.py")):
        [made] = re.findall(r"# Protobuf Python Version: (\S+)", file.read_text())
        assert Version(made) <= Version(protobuf), file
    for file in sorted(WIRE.rglob("*_pb2_grpc.py")):
        [made] = re.findall(r"GRPC_GENERATED_VERSION = '(\S+)'", file.read_text())
        assert Version(made) <= Version(grpcio), file


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("floors")
def test_everything_works_at_the_floor(tmp_path: Path, dist: Path) -> None:
    """The oldest Python with the lowest versions: both must be what somebody really can have."""
    oldest = RELEASE["pythons"][0]
    python = find_pythons((oldest,)).get(oldest)
    if python is None:
        pytest.skip(f"there is no Python {oldest} here")
    floors = {name: floor for name, [floor] in list_floors().items()}
    floors.pop(canonicalize_name("pip"))  # the environment's own runs here
    constraints = tmp_path / "floors.txt"
    constraints.write_text("".join(f"{name}=={each}\n" for name, each in floors.items()))
    lowest = CleanEnvironment(tmp_path / "lowest", python, dist)

    lowest.install("pipecd", constraints=constraints)

    installed = {canonicalize_name(name): each for name, each in lowest.list_installed().items()}
    assert {name: Version(installed[name]) for name in floors} == {
        name: Version(each) for name, each in floors.items()
    }
    assert re.search(r"(\d+) of \1 as expected", lowest.run("pipecd", "quickstart", "--check"))
    lowest.run("pipectl", "plugin", "init", "hello")
    lowest.run(
        *("python", "-m", "pip", "install", "--quiet", "--no-deps", "./hello"),
        extra={"PIP_CONSTRAINT": str(ROOT / "constraints.txt")},
    )
    lowest.run("pipectl", "plugin", "build", "hello", "--output", "hello.pyz")
    shown = lowest.run(
        *("pipectl", "plugin", "test", "--profile", "hello/conformance.yaml", "--", "./hello.pyz")
    )
    assert "BROKEN" not in shown
