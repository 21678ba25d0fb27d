# SPDX-License-Identifier: Apache-2.0
"""Packages of Debian, unpacked into the user's cache where apt can fetch them."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

LIMIT = 60


def unpack_package(name: str, target: Path, *, with_libraries: Sequence[str] = ()) -> str:
    """Unpacks a package into a folder; returns what went wrong, nothing when it is there.

    What it depends on comes along where a name begins with one of `with_libraries`.
    """
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            return f"{program} is not on the PATH"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folder = Path(scratch)
        try:
            _download(name, folder)
            for each in _list_needed(folder, name, with_libraries):
                _download(each, folder)
            unpacked = folder / "unpacked"
            for package in folder.glob("*.deb"):
                subprocess.run(
                    ["dpkg-deb", "--extract", package, unpacked], check=True, timeout=LIMIT
                )
            unpacked.rename(target)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return f"Debian's package cannot be had: {error}"
    return ""


def _download(name: str, folder: Path) -> None:
    subprocess.run(
        ["apt-get", "download", "--quiet", name],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=10 * LIMIT,
    )


def _list_needed(folder: Path, name: str, prefixes: Sequence[str]) -> list[str]:
    """Returns those packages that a downloaded one depends on whose names begin like this."""
    if not prefixes:
        return []
    [package] = folder.glob(f"{name}_*.deb")
    found = subprocess.run(
        ["dpkg-deb", "--field", package, "Depends"],
        check=True,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    names = [each.split()[0] for each in found.stdout.split(",") if each.strip()]
    return [each for each in names if each.startswith(tuple(prefixes))]
