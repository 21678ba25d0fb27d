# SPDX-License-Identifier: Apache-2.0
"""Write requirements.lock: every version of constraints.txt, with the hashes of all its files.

    python tools/pin.py          write the file anew
    python tools/pin.py --check  only compare the names and versions; asks nobody

The files are looked up by name in the index that pip is configured for, with pip's own means: its
addresses, proxies and certificates. All files of a version count, for every platform and every
Python, so that one lock serves all. A file whose hash the index does not tell is left out, and so
is never installed.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from pip._internal.commands import create_command
from pip._internal.index.collector import LinkCollector, parse_links
from pip._internal.models.link import Link

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
LOCK = ROOT / "requirements.lock"

HEADER = """\
# Written by tools/pin.py from constraints.txt. Do not edit.
# `make setup` installs it with `pip install --require-hashes --no-deps`.
"""
PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")


class PinError(Exception):
    """The lock cannot be written; says why."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare names and versions only")
    parser.add_argument("--constraints", type=Path, default=CONSTRAINTS, metavar="FILE")
    parser.add_argument("--lock", type=Path, default=LOCK, metavar="FILE")
    arguments = parser.parse_args()
    try:
        pins = read_pins(arguments.constraints)
        if arguments.check:
            return compare(pins, read_pins(arguments.lock))
        with pip_index() as hashes_of:
            parts = [format_lock(name, version, hashes_of(name)) for name, version in pins.items()]
    except PinError as error:
        print(error, file=sys.stderr)
        return 1
    arguments.lock.write_text(HEADER + "".join(parts))
    print(f"{len(parts)} distributions in {arguments.lock.name}")
    return 0


def compare(pins: dict[str, str], locked: dict[str, str]) -> int:
    """Say whether the lock fits the constraints."""
    if locked == pins:
        return 0
    print("requirements.lock does not fit constraints.txt; run `make pins`", file=sys.stderr)
    return 1


def read_pins(file: Path) -> dict[str, str]:
    """Return the version of each name, in the order of the file."""
    pins: dict[str, str] = {}
    for line in file.read_text().splitlines():
        if line.startswith(("#", " ")) or not line:
            continue
        found = PIN.match(line)
        if found is None:
            raise PinError(f"{file.name}: not a pin: {line!r}")
        pins[found[1]] = found[2]
    return pins


def format_lock(name: str, version: str, files: dict[str, str]) -> str:
    """Return the lines of one distribution; raises PinError if there is no such version."""
    hashes = sorted({digest for file, digest in files.items() if version_of(file) == version})
    if not hashes:
        raise PinError(f"the index has no files of {name} {version}")
    lines = " \\\n".join(f"    --hash=sha256:{digest}" for digest in hashes)
    return f"{name}=={version} \\\n{lines}\n"


def version_of(file: str) -> str | None:
    """Return the version that a file's name tells, if it is one that pip installs."""
    found: Version
    try:
        if file.endswith(".whl"):
            found = parse_wheel_filename(file)[1]
        else:
            found = parse_sdist_filename(file)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    return str(found)


class Index:
    """What pip's index says about files."""

    def __init__(self, collector: LinkCollector) -> None:
        self._collector = collector

    def __call__(self, name: str) -> dict[str, str]:
        """Return the SHA-256 of each file of a distribution."""
        files: dict[str, str] = {}
        places = self._collector.search_scope.get_index_urls_locations(canonicalize_name(name))
        for place in places:
            page = self._collector.fetch_response(Link(place))
            if page is None:
                raise PinError(f"the index does not answer for {name}")
            for link in parse_links(page):
                if link.hash_name == "sha256" and link.hash:
                    files[link.filename] = link.hash
        return files


@contextmanager
def pip_index() -> Iterator[Index]:
    """Give access to the index that pip is configured for."""
    command = create_command("download")
    options, _ = command.parse_args(["pip"])
    with command.main_context():
        session = command.get_default_session(options)  # type: ignore[attr-defined]
        yield Index(LinkCollector.create(session, options=options))


if __name__ == "__main__":
    sys.exit(main())
