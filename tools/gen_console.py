# SPDX-License-Identifier: Apache-2.0
"""Generate the TypeScript of the wire protocol from `proto/` into `console/src/api/gen`.

What is generated is not committed: `npm run build` in `console/` calls this first.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import gen_wire

CONSOLE = gen_wire.ROOT / "console"
TARGET = CONSOLE / "src" / "api" / "gen"
GENERATOR = CONSOLE / "node_modules" / ".bin" / "protoc-gen-es"
SERVICES = ("pipecd_wire/webservice", "pipecd_wire/apiservice", "pipecd_wire/pipecd/api")
"""The folders of the services that the console calls; what they import is generated with them."""


def main() -> int:
    if not GENERATOR.exists():
        print("protoc-gen-es is not installed: run `npm ci` in console/", file=sys.stderr)
        return 1
    gen_wire.install_compiler()
    include = gen_wire.COMPILER / "grpc_tools" / "_proto"
    sources = list_sources()
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{gen_wire.PROTOS}", f"-I{include}"]
    options = [f"--plugin=protoc-gen-es={GENERATOR}", f"--es_out={TARGET}", "--es_opt=target=ts"]
    environment = os.environ | {"PYTHONPATH": str(gen_wire.COMPILER)}
    return subprocess.run([*protoc, *options, *sources], env=environment, check=False).returncode


def list_sources() -> list[str]:
    """Return the protos of the services and all that they import, but those of protobuf itself."""
    found: set[str] = set()
    waiting = [
        path.relative_to(gen_wire.PROTOS).as_posix()
        for folder in SERVICES
        for path in sorted((gen_wire.PROTOS / folder).glob("*.proto"))
    ]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting += list_imports(gen_wire.PROTOS / name)
    return sorted(found)


def list_imports(path: Path) -> list[str]:
    """Return the protos of ours that a proto imports."""
    lines = path.read_text().splitlines()
    names = [line.split('"')[1] for line in lines if line.startswith("import ")]
    return [name for name in names if not name.startswith("google/")]


if __name__ == "__main__":
    raise SystemExit(main())
