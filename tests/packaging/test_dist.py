# SPDX-License-Identifier: Apache-2.0
"""The archives that `make dist` builds: always the same, complete, and alone in site-packages."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path, PurePosixPath

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from trove_classifiers import classifiers as known_classifiers

from pipecd_test_support.clean_environment import CleanEnvironment

ROOT = Path(__file__).parents[2]
RELEASE = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pipecd"]["release"]
PROJECTS = {
    tomllib.loads(file.read_text())["project"]["name"]: file.parent
    for folder in ("packages", "plugins")
    for file in sorted((ROOT / folder).glob("*/pyproject.toml"))
}
every_distribution = pytest.mark.parametrize("name", PROJECTS)


def wheel_of(dist: Path, name: str) -> zipfile.ZipFile:
    file = f"{name.replace('-', '_')}-{RELEASE['version']}-py3-none-any.whl"
    return zipfile.ZipFile(dist / file)


def metadata_text(dist: Path, name: str) -> bytes:
    about = f"{name.replace('-', '_')}-{RELEASE['version']}.dist-info"
    return wheel_of(dist, name).read(f"{about}/METADATA")


def read_metadata(dist: Path, name: str) -> Message:
    return BytesParser().parsebytes(metadata_text(dist, name))


def sums(folder: Path) -> dict[str, str]:
    files = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_a_second_build_elsewhere_gives_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    """Another folder, other dates, other permissions, a year later: who builds proves nothing."""
    checkout = tmp_path / "elsewhere"
    kept = shutil.ignore_patterns("__pycache__", ".*")
    for each in ("packages", "plugins"):
        shutil.copytree(ROOT / each, checkout / each, symlinks=True, ignore=kept)
    for each in ("LICENSE", "pyproject.toml"):
        shutil.copy(ROOT / each, checkout / each)
    for path in checkout.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o600)
            os.utime(path, (1_000_000_000, 1_000_000_000))
    tool = [sys.executable, str(ROOT / "tools" / "dist.py"), "--root", str(checkout)]
    subprocess.run(
        [*tool, "--output", str(tmp_path / "again"), "--wheels"],
        check=True,
        timeout=120,
        env={**os.environ, "TZ": "Pacific/Auckland", "PYTHONHASHSEED": "7"},
        umask=0o077,
    )

    first = {name: digest for name, digest in sums(dist).items() if name.endswith(".whl")}
    assert sums(tmp_path / "again") == first
    assert len(first) == len(PROJECTS)


def test_the_source_archives_are_the_same_too(dist: Path, tmp_path: Path) -> None:
    tool = [sys.executable, str(ROOT / "tools" / "dist.py"), "--output", str(tmp_path)]
    subprocess.run(tool, check=True, timeout=120, umask=0o077)

    assert sums(tmp_path) == sums(dist)
    lines = [line.split("  ") for line in (tmp_path / "SHA256SUMS").read_text().splitlines()]
    assert {name: digest for digest, name in lines} == sums(dist)


@pytest.mark.parametrize("name", ["pipecd", "pipecd-wire", "pipecd-plugin-wait"])
def test_a_source_archive_builds_the_same_wheel(dist: Path, tmp_path: Path, name: str) -> None:
    folder = f"{name.replace('-', '_')}-{RELEASE['version']}"
    with tarfile.open(dist / f"{folder}.tar.gz") as archive:
        assert all(member.isfile() for member in archive)
        archive.extractall(tmp_path, filter="data")
    build = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", build, tmp_path], cwd=tmp_path / folder, check=True, timeout=60
    )

    file = f"{folder}-py3-none-any.whl"
    assert (tmp_path / file).read_bytes() == (dist / file).read_bytes()


@every_distribution
def test_the_metadata_passes_a_strict_check(dist: Path, name: str) -> None:
    """Everything an index and a person who looks there want to know."""
    Metadata.from_email(metadata_text(dist, name), validate=True)
    told = read_metadata(dist, name)

    assert (told["Name"], told["Version"]) == (name, RELEASE["version"])
    assert 10 < len(told["Summary"]) <= 100
    assert told["License-Expression"] == "Apache-2.0"
    assert told["License-File"] == "LICENSE"
    assert told["Requires-Python"] == ">=3.11"
    assert told["Author"]
    assert told["Keywords"]
    assert told["Description-Content-Type"] == "text/markdown"
    text = str(told.get_payload())
    assert text.startswith(f"# {name}\n")
    assert len(text) > 150
    assert not re.findall(r"\]\((?!https://)", text), "an index cannot follow such a link"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tool_that_uploads_has_nothing_against_them(dist: Path, tmp_path: Path) -> None:
    here = CleanEnvironment(tmp_path / "here", Path(sys.executable), dist)
    here.install("twine")

    files = sorted(str(each) for each in (*dist.glob("*.whl"), *dist.glob("*.tar.gz")))
    shown = here.run("twine", "--no-color", "check", "--strict", *files)

    assert shown.count("PASSED") == len(files)


@pytest.mark.parametrize("folder", PROJECTS.values(), ids=PROJECTS)
def test_the_examples_of_a_readme_are_right(folder: Path, tmp_path: Path) -> None:
    """They are the first thing that people copy."""
    documents = re.findall(r"```yaml\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    about = "  projectID: p\n  pipedID: i\n  pipedKeyData: a2V5\n  apiAddress: host:443\n"
    for number, text in enumerate(documents):
        kind = "piped" if "kind: Piped" in text else "app.pipecd"
        whole = text.replace("spec:\n", f"spec:\n{about}", 1) if kind == "piped" else text
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / f"{kind}.yaml").write_text(whole)
    files = [str(each) for each in tmp_path.glob("*/*.yaml")]
    if files:
        pipectl = str(Path(sys.executable).parent / "pipectl")
        done = subprocess.run(
            [pipectl, "lint", *files],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    for code in re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL):
        exec(compile(code, "README.md", "exec"), {"__name__": "example"})  # noqa: S102 - our own


@every_distribution
def test_the_classifiers_exist_and_name_each_python(dist: Path, name: str) -> None:
    told = set(read_metadata(dist, name).get_all("Classifier", ()))

    assert told <= known_classifiers
    assert {f"Programming Language :: Python :: {each}" for each in RELEASE["pythons"]} <= told
    assert not any(each.startswith("License ::") for each in told), "the expression says it"


@every_distribution
def test_the_addresses_are_ones_that_everybody_reaches(dist: Path, name: str) -> None:
    told = [each.partition(", ") for each in read_metadata(dist, name).get_all("Project-URL", ())]

    assert {label for label, _, _ in told} >= {"Homepage", "Documentation"}
    for _, _, address in told:
        assert re.fullmatch(r"https://[a-z]+\.[a-z]+(/[a-z/-]*)?", address)


@every_distribution
def test_siblings_are_pinned_and_others_have_a_floor(dist: Path, name: str) -> None:
    for text in read_metadata(dist, name).get_all("Requires-Dist", ()):
        wanted = Requirement(text)
        operators = [each.operator for each in wanted.specifier]
        if wanted.name in PROJECTS:
            assert str(wanted.specifier) == f"=={RELEASE['version']}", text
        else:
            assert operators == [">="], f"{text}: a floor, and no cap that shuts neighbours out"


@every_distribution
def test_a_wheel_has_the_licence_and_nothing_of_our_workshop(dist: Path, name: str) -> None:
    with wheel_of(dist, name) as wheel:
        files = [PurePosixPath(each) for each in wheel.namelist()]
        [licence] = [each for each in files if each.name == "LICENSE"]
        assert wheel.read(str(licence)) == (ROOT / "LICENSE").read_bytes()

    top = {each.parts[0] for each in files}
    assert all(each.startswith("pipecd") for each in top), "a name that is ours alone"
    assert not [each for each in files if each.suffix == ".pyc" or each.match("test_*.py")]
    packages = {each for each in top if not each.endswith(".dist-info")}
    assert packages == ({name.replace("-", "_")} if name != "pipecd" else set())
    assert all(PurePosixPath(each, "py.typed") in files for each in packages)


def test_every_name_of_a_distribution_begins_alike() -> None:
    """`pipectl` and `piped` on the package index belong to other people."""
    assert all(re.fullmatch(r"pipecd(-[a-z]+)*", name) for name in PROJECTS)


def test_the_one_to_install_brings_all_programs_and_plugins(dist: Path) -> None:
    told = read_metadata(dist, "pipecd").get_all("Requires-Dist", ())
    brought = {Requirement(each).name for each in told}

    plugins = {f"pipecd-plugin-{file.parent.name}" for file in ROOT.glob("plugins/*/README.md")}
    programs = {"pipecd-controlplane", "pipecd-piped", "pipecd-pipectl", "pipecd-quickstart"}
    assert brought == (plugins - {"pipecd-plugin-dummy"}) | programs


def test_its_commands_are_those_of_the_parts() -> None:
    """Installers of applications offer the commands of the named distribution only."""
    scripts = {
        name: tomllib.loads((folder / "pyproject.toml").read_text())["project"].get("scripts", {})
        for name, folder in PROJECTS.items()
    }
    parts = ("pipecd-controlplane", "pipecd-piped", "pipecd-pipectl")

    assert scripts["pipecd"] == {key: each for part in parts for key, each in scripts[part].items()}


@pytest.mark.parametrize("folder", sorted(ROOT.glob("plugins/*")), ids=lambda folder: folder.name)
def test_a_plugin_is_an_entry_point_with_a_command(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]

    assert set(project["entry-points"]["pipecd.plugins"].values()) == set(
        project["scripts"].values()
    )
