# SPDX-License-Identifier: Apache-2.0
"""Check `proto/`: every RPC has its right, and our own packages stay what they were.

`check_proto.py` prints what is wrong and fails; `check_proto.py --freeze` makes the packages of
today the ones that must not break, and later takes additions in. Upstream's packages need no
baseline: the wire table is theirs.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from pipecd_wire.model import rbac_pb2
from pipecd_wire.options import rights_pb2

PROTOS = Path(__file__).resolve().parent.parent / "proto"
OWN = "pipecd_wire/pipecd"
# Below the folder of the protos. The mark stands apart from the image so that it can carry words.
BASELINE = "baseline.binpb"
MARK = "FROZEN"
FILE_RULES = '{"version": "v2", "breaking": {"use": ["FILE"]}}'


class BufError(Exception):
    """What buf said when it could not read the protos, or found a breaking change."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--freeze", action="store_true", help="write the baseline of our packages")
    parser.add_argument("--proto", type=Path, default=PROTOS, help="the folder to check")
    arguments = parser.parse_args()
    try:
        wrong = list(rights_missing(arguments.proto))
        refuse_breaking(arguments.proto)
    except BufError as error:
        wrong = str(error).splitlines()
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    if arguments.freeze:
        freeze(arguments.proto)
    return 0


def rights_missing(protos: Path) -> Iterator[str]:
    """One line for each RPC that nobody said who may call."""
    for file in FileDescriptorSet.FromString(buf(protos, "build", "-o", "-")).file:
        for service in file.service:
            name = f"{file.name}: {file.package}.{service.name}"
            yield from (f"{name}{problem}" for problem in service_problems(service))


def service_problems(service: ServiceDescriptorProto) -> Iterator[str]:
    callers = service.options.Extensions[rights_pb2.callers]
    if not callers or rights_pb2.CALLER_UNSPECIFIED in callers:
        yield " has no (pipecd.options.callers)"
    for method in service.method:
        if rights_pb2.API_KEY in callers and not has_role(method):
            yield f".{method.name} is called with API keys and has no (pipecd.options.role)"
        if rights_pb2.SESSION in callers and not method.options.HasExtension(rbac_pb2.rbac):
            yield f".{method.name} is called in sessions and has no (model.rbac)"
        options = method.options.Extensions
        if options[rights_pb2.without_lease] and rights_pb2.PIPED not in callers:
            yield f".{method.name} has (pipecd.options.without_lease) and no piped calls it"
        if (
            rights_pb2.SESSION not in callers
            and method.options.Extensions[rights_pb2.checks_labels]
        ):
            yield f".{method.name} has (pipecd.options.checks_labels) and is not called in sessions"


def has_role(method: MethodDescriptorProto) -> bool:
    return method.options.Extensions[rights_pb2.role] != rights_pb2.ROLE_UNSPECIFIED


def refuse_breaking(protos: Path) -> None:
    """Fail when one of our own packages is no longer what a peer of yesterday speaks."""
    if (protos / MARK).exists():
        buf(protos, "breaking", "--against", BASELINE, "--exclude-imports", "--path", OWN)


def freeze(protos: Path) -> None:
    buf(protos, "build", "--exclude-source-info", "--path", OWN, "-o", BASELINE)
    (protos / MARK).write_text(
        f"The packages of {OWN} only grow: `make lint` compares them with {BASELINE}.\n"
        "After an addition: tools/check_proto.py --freeze\n"
    )


def buf(protos: Path, *arguments: str) -> bytes:
    # buf is a program beside this interpreter.
    command = [str(Path(sys.executable).parent / "buf"), *arguments, "--config", FILE_RULES]
    done = subprocess.run(command, cwd=protos, capture_output=True, check=False)
    if done.returncode:
        raise BufError((done.stdout + done.stderr).decode())
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
