# SPDX-License-Identifier: Apache-2.0
"""Generate the Python of the wire protocol from `proto/` into `packages/wire/src`.

`gen_wire.py` writes; `gen_wire.py --check` fails when the committed files are stale.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc_tools

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "proto"
TARGET = ROOT / "packages" / "wire" / "src"
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


def generate(out: Path) -> None:
    """Run protoc with the Python, gRPC and mypy generators."""
    sources = sorted(path.relative_to(PROTOS).as_posix() for path in PROTOS.rglob("*.proto"))
    services = [path for path in sources if "\nservice " in (PROTOS / path).read_text()]
    include = Path(grpc_tools.__file__).parent / "_proto"
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", f"-I{include}"]
    # The generators of mypy-protobuf are programs beside this interpreter.
    bin_folder = Path(sys.executable).parent
    plugins = [
        f"--plugin=protoc-gen-{name}={bin_folder / f'protoc-gen-{name}'}"
        for name in ("mypy", "mypy_grpc")
    ]
    subprocess.run(
        [*protoc, *plugins, f"--python_out={out}", f"--mypy_out=quiet:{out}", *sources], check=True
    )
    subprocess.run(
        [*protoc, *plugins, f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}", *services],
        check=True,
    )


def list_generated(folder: Path) -> list[Path]:
    return sorted(path for pattern in GENERATED for path in folder.rglob(pattern))


if __name__ == "__main__":
    sys.exit(main())
