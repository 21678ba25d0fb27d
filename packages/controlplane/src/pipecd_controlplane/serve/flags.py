# SPDX-License-Identifier: Apache-2.0
"""Flags of upstream's `controlplane server`: those that mean something here, and those that do not.

A flag without a meaning is accepted and reported, so that upstream's command lines work here.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import click

from pipecd_model.config.values import Duration
from pipecd_runtime.command_line import DurationParam

F = TypeVar("F", bound=Callable[..., Any])

LISTEN: Final = "one address carries everything: --listen"
NO_PROFILER: Final = "there is no profiler to send to"

MEANINGLESS: Final = {
    "piped-api-port": LISTEN,
    "web-api-port": LISTEN,
    "http-port": LISTEN,
    "api-port": LISTEN,
    "envoy-authz-port": LISTEN,
    "cache-address": "nothing is cached outside of the process",
    "enable-grpc-reflection": "there is no reflection",
    "profile": NO_PROFILER,
    "profile-debug-logging": NO_PROFILER,
    "profiler-credentials-file": NO_PROFILER,
    "gcloud-path": "there is no Firestore",
}
SWITCHES: Final = {"enable-grpc-reflection", "profile", "profile-debug-logging"}

# As Go spells levels, and as we do.
LEVELS: Final = {
    "debug": "debug",
    "info": "info",
    "warn": "warning",
    "warning": "warning",
    "error": "error",
    "dpanic": "error",
    "panic": "error",
    "fatal": "error",
}


def parse_wait(text: str) -> timedelta:
    """Returns a length of time: `30s`, `1m30s`, or a bare number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = Duration.parse(text).total_seconds()
    if not 0 <= seconds < 1e9:
        raise ValueError(f"{text!r} is not a time that can be waited for")
    return timedelta(seconds=seconds)


WAIT: Final = DurationParam(parse_wait)


def switch(name: str, help: str) -> Callable[[F], F]:
    """A flag that Go's way of writing it fits: `--tls`, `--tls=true`, `--tls=false`."""
    return click.option(
        f"--{name}", type=bool, is_flag=False, flag_value="true", default=False, help=help
    )


def meaningless(command: F) -> F:
    """Take the flags that mean nothing here; `warn_of` says so."""
    for name in MEANINGLESS:
        extra: dict[str, Any] = {"expose_value": True, "hidden": True, "default": None}
        if name in SWITCHES:
            extra |= {"type": bool, "is_flag": False, "flag_value": "true"}
        command = click.option(f"--{name}", **extra)(command)
    return command


def warn_of(given: dict[str, Any]) -> None:
    """Say which flags were given in vain."""
    for name, why in MEANINGLESS.items():
        if given.get(name.replace("-", "_")) is not None:
            click.echo(f"warning: --{name} has no meaning here: {why}", err=True)
