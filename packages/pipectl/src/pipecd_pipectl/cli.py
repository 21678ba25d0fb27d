# SPDX-License-Identifier: Apache-2.0
"""The entry point: turns failures of the commands in `registry` into a sentence and an exit code.

Nothing heavy is imported here, so that `--help` and completion are fast.
"""

import os

import click

from pipecd_model.errors import add_hint, explain
from pipecd_pipectl.completing import VARIABLE
from pipecd_pipectl.registry import COMMANDS
from pipecd_pipectl.version import format_version
from pipecd_runtime.command_line import run_program, version_option
from pipecd_runtime.lazy_commands import LazyGroup

# What a script can tell apart: 2 the call is wrong, 4 not found or not allowed, 5 try again later.
EXIT_CODES = {
    "INVALID_ARGUMENT": 2,
    "NOT_FOUND": 4,
    "PERMISSION_DENIED": 4,
    "UNAUTHENTICATED": 4,
    "UNAVAILABLE": 5,
    "DEADLINE_EXCEEDED": 5,
}

HINTS = {
    "UNAUTHENTICATED": "check --api-key or --api-key-file, or sign in: pipectl login",
    "UNAVAILABLE": "check --address",
    "UNIMPLEMENTED": "this control plane does not offer that",
}


EXAMPLES = """\b
Examples:
  pipectl login https://pipecd.example.com
  pipectl application list
  pipectl deployment logs hello --follow
  pipectl why hello
  pipectl doctor

Every command has its own help: pipectl COMMAND --help
"""


@click.group(
    cls=LazyGroup,
    entries=COMMANDS,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@version_option(format_version)
def cli() -> None:
    """Work with a PipeCD control plane from the command line.

    Sign in with `pipectl login ADDRESS`; commands then talk to the current context. Flags win over
    it, and so do variables: --address (PIPECTL_ADDRESS), --api-key (PIPECTL_API_KEY),
    --api-key-file (PIPECTL_API_KEY_FILE), --context (PIPECTL_CONTEXT), --insecure
    (PIPECTL_INSECURE), --cert-file (PIPECTL_CERT_FILE).

    Exit codes: 0 done, 1 failed, 2 wrong call, 3 timed out, 4 not found or not allowed,
    5 not reachable.
    """


def main() -> None:
    """Runs `pipectl`, and exits with its exit code."""
    if os.environ.get(VARIABLE) is not None:
        from pipecd_pipectl.completing.shells import answer_shell  # noqa: PLC0415 - only to complete

        answer_shell(cli, VARIABLE)
    run_program(cli, explain=_explain)


def _explain(error: Exception) -> tuple[str, int] | None:
    if (explained := explain(error)) is not None:
        return explained
    from pipecd_wire.rpc import CallError  # noqa: PLC0415 - gRPC, which most calls never need

    if not isinstance(error, CallError):
        return None
    return add_hint(error, HINTS.get(error.status, "")), EXIT_CODES.get(error.status, 1)
