# SPDX-License-Identifier: Apache-2.0
"""Build the wheel and the source archive of every distribution, the same bytes each time.

    python tools/dist.py [--output dist] [--wheels]

What is built depends on the files and on the pinned build backend alone: dates and permissions are
fixed. A build with SOURCE_DATE_EPOCH in its environment has that date instead.
"""

import argparse
import contextlib
import hashlib
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

from hatchling.build import build_sdist, build_wheel
from metadata import ROOT, list_projects

SUMS = "SHA256SUMS"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="FOLDER")
    parser.add_argument("--wheels", action="store_true", help="no source archives")
    parser.add_argument("--root", type=Path, default=ROOT, help="build another checkout")
    arguments = parser.parse_args()
    files = build_all(arguments.root, arguments.output.absolute(), sources=not arguments.wheels)
    print(f"{len(files)} files and {SUMS} in {arguments.output}")
    return 0


def build_all(root: Path, output: Path, *, sources: bool) -> list[Path]:
    """Builds all distributions of a checkout into an emptied folder; returns the files."""
    output.mkdir(parents=True, exist_ok=True)
    for old in [*output.glob("pipecd*.whl"), *output.glob("pipecd*.tar.gz")]:
        old.unlink()
    files = []
    with tempfile.TemporaryDirectory(dir=output) as fresh:
        for folder in list_projects(root):
            # From a copy: links have become files there, and nothing is left of earlier runs.
            copy = Path(fresh) / "folders" / folder.name
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__", ".*"))
            with contextlib.chdir(copy), contextlib.redirect_stdout(io.StringIO()):
                names = [build_wheel(fresh)]
                names += [build_sdist(fresh)] if sources else []
            for name in names:
                os.replace(Path(fresh, name), output / name)  # noqa: PTH105 - says what it is
                files.append(output / name)
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (output / SUMS).write_text("".join(lines))
    return files


if __name__ == "__main__":
    sys.exit(main())
