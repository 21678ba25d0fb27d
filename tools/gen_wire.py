# SPDX-License-Identifier: Apache-2.0
"""Generate the Python of the wire protocol from `proto/` into `packages/wire/src`.

`gen_wire.py` writes; `gen_wire.py --check` fails when the committed files are stale.

Generated code refuses a runtime that is older than its generator. So the generator is the oldest
one whose code also newer runtimes take, and `tools/protoc.lock` pins it. It cannot share an
environment with the newest runtime: it gets a folder of its own in the environment.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "proto"
TARGET = ROOT / "packages" / "wire" / "src"
LOCK = ROOT / "tools" / "protoc.lock"
COMPILER = Path(sysconfig.get_path("data")) / "protoc"
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail when the files are stale")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        generate(fresh)
        wanted = {path.relative_to(fresh): path.read_bytes() for path in list_generated(fresh)}
    present = {path.relative_to(TARGET): path.read_bytes() for path in list_generated(TARGET)}
    stale = sorted(
        path for path in wanted.keys() | present.keys() if wanted.get(path) != present.get(path)
    )
    if check:
        for path in stale:
            print(f"stale: {path} (run `make proto`)", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        target = TARGET / path
        if path in wanted:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(wanted[path])
        else:
            target.unlink()
    print(f"{len(wanted)} files, {len(stale)} changed")
    return 0


def install_compiler() -> None:
    """Install the pinned compiler into its folder, unless it is there."""
    stamp = COMPILER / LOCK.name
    if stamp.is_file() and stamp.read_bytes() == LOCK.read_bytes():
        return
    shutil.rmtree(COMPILER, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    wanted = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(LOCK)]
    subprocess.run([*pip, *wanted, "--target", str(COMPILER)], check=True)
    shutil.copyfile(LOCK, stamp)


def generate(out: Path) -> None:
    """Run protoc with the Python, gRPC and mypy generators."""
    install_compiler()
    sources = sorted(path.relative_to(PROTOS).as_posix() for path in PROTOS.rglob("*.proto"))
    services = [path for path in sources if "\nservice " in (PROTOS / path).read_text()]
    include = COMPILER / "grpc_tools" / "_proto"
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", f"-I{include}"]
    # The generators of mypy-protobuf are programs beside this interpreter.
    bin_folder = Path(sys.executable).parent
    plugins = [
        f"--plugin=protoc-gen-{name}={bin_folder / f'protoc-gen-{name}'}"
        for name in ("mypy", "mypy_grpc")
    ]
    # The compiler itself needs no runtime; its plugins find theirs in this environment.
    environment = os.environ | {"PYTHONPATH": str(COMPILER)}
    for outputs, files in (
        ([f"--python_out={out}", f"--mypy_out=quiet:{out}"], sources),
        ([f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}"], services),
    ):
        subprocess.run([*protoc, *plugins, *outputs, *files], check=True, env=environment)


def list_generated(folder: Path) -> list[Path]:
    return sorted(path for pattern in GENERATED for path in folder.rglob(pattern))


if __name__ == "__main__":
    sys.exit(main())
