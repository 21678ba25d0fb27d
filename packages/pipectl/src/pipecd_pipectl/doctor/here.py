# SPDX-License-Identifier: Apache-2.0
"""Checks this machine: git, and through `piped check` a piped's configuration."""

import json
import shutil
import sys
from pathlib import Path

from pipecd_runtime.checkup import CheckRow, fail, ok, read_row, warn
from pipecd_runtime.process import (
    BadArgumentError,
    choose_environment,
    join_option,
    operator_environment,
    own,
    run_blocking,
    word,
)


def check_git() -> CheckRow:
    """Says which git is installed."""
    try:
        done = run_blocking(own("git", "--version"), env=choose_environment(["PATH", "HOME"]))
    except OSError:
        return warn("git", "is not installed here", "install git 2.36 or newer where piped runs")
    return ok("git", done.stdout.strip().removeprefix("git "))


def check_piped_file(file: Path, *, insecure: bool, cert_file: Path | None) -> list[CheckRow]:
    """Returns the rows of `piped check`, which looks with piped's own eyes."""
    program = shutil.which("piped", path=Path(sys.executable).parent) or shutil.which("piped")
    if program is None:
        step = f"run `piped check --config-file {file}` where piped is installed"
        return [fail("piped file", "cannot be checked: piped is not installed here", step)]
    arguments = [word(program), *own("check", "--output=json"), join_option("--config-file=", file)]
    if insecure:
        arguments += own("--insecure")
    if cert_file is not None:
        arguments.append(join_option("--cert-file=", cert_file))
    try:
        done = run_blocking(arguments, env=operator_environment())
        rows = [read_row(each) for each in json.loads(done.stdout)["checks"]]
    except (OSError, BadArgumentError, ValueError, KeyError, TypeError):
        step = f"run `piped check --config-file {file}` to see what it says"
        return [fail("piped file", "cannot be checked: `piped check` gives no answer", step)]
    return rows
