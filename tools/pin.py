# SPDX-License-Identifier: Apache-2.0
"""Write the locks: every version of a list of constraints, with the hashes of all its files.

    python tools/pin.py          write the files anew
    python tools/pin.py --check  only compare the names and versions; asks nobody

constraints.txt has what running from a checkout installs, constraints-dev.txt what building,
checking and testing install besides, tools/protoc.txt what generates the wire protocol,
tools/node.txt what builds the console.
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
PAIRS = (
    (ROOT / "constraints.txt", ROOT / "requirements.lock"),
    (ROOT / "constraints-dev.txt", ROOT / "requirements-dev.lock"),
    (ROOT / "tools" / "protoc.txt", ROOT / "tools" / "protoc.lock"),
    (ROOT / "tools" / "node.txt", ROOT / "tools" / "node.lock"),
)
HEADER = """\
# Written by tools/pin.py from {constraints}. Do not edit.
# It is installed with `pip install --require-hashes --no-deps`.
"""
PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")


class PinError(Exception):
    """The lock cannot be written; says why."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare names and versions only")
    parser.add_argument("--constraints", type=Path, metavar="FILE", help="only this file")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="the lock of that file")
    arguments = parser.parse_args()
    chosen = (arguments.constraints, arguments.lock)
    if (chosen[0] is None) != (chosen[1] is None):
        parser.error("--constraints and --lock go together")
    pairs = PAIRS if chosen == (None, None) else (chosen,)
    try:
        for constraints, lock in pairs:
            if arguments.check:
                compare(constraints, lock)
            else:
                write(constraints, lock)
    except PinError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def write(constraints: Path, lock: Path) -> None:
    """Write the lock of one file of constraints. Raises PinError."""
    pins = read_pins(constraints)
    with pip_index() as hashes_of:
        parts = [format_lock(name, version, hashes_of(name)) for name, version in pins.items()]
    lock.write_text(HEADER.format(constraints=constraints.name) + "".join(parts))
    print(f"{len(parts)} distributions in {lock.name}")


def compare(constraints: Path, lock: Path) -> None:
    """Raises PinError unless the lock fits the constraints."""
    if read_pins(lock) != read_pins(constraints):
        raise PinError(f"{lock.name} does not fit {constraints.name}; run `make pins`")


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
