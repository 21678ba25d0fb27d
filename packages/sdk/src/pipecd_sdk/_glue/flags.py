# SPDX-License-Identifier: Apache-2.0
"""The command line of every plugin: the flags a Go agent passes, and our `--config-fd`.

Some flags of upstream's binaries mean nothing here; they are accepted, so that existing start
commands keep working.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from pipecd_model.config import BadValueError, Duration
from pipecd_model.config.values import format_bad_value


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """How a plugin was started."""

    piped: str
    """`host:port` of piped's plugin service."""
    config: str | None
    config_fd: int | None
    grace_period: timedelta
    tls: bool
    cert_file: Path | None
    key_file: Path | None
    log_level: str
    log_encoding: str


def parse(args: Sequence[str], *, name: str, version: str) -> Flags:
    """Parses the command line; exits with a usage message when it is wrong."""
    parser = argparse.ArgumentParser(prog=name, allow_abbrev=False, formatter_class=_Help)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("version", formatter_class=_Help, help="print the version")
    start = commands.add_parser(
        "start", allow_abbrev=False, formatter_class=_Help, help="serve; piped does this"
    )
    start.add_argument("--piped-plugin-service", required=True, metavar="HOST:PORT")
    given = start.add_mutually_exclusive_group(required=True)
    given.add_argument("--config", metavar="JSON", help="the plugin's entry of the piped file")
    given.add_argument("--config-fd", type=int, metavar="N", help="where to read that JSON from")
    start.add_argument("--grace-period", type=_duration, default=Duration(seconds=30))
    _add_boolean(start, "--tls", help="serve with TLS")
    start.add_argument("--cert-file", type=Path)
    start.add_argument("--key-file", type=Path)
    start.add_argument("--log-level", default="info", choices=_LEVELS)
    start.add_argument("--log-encoding", default="humanize", choices=_ENCODINGS)
    for taken in ("--enable-grpc-reflection", "--profile", "--profile-debug-logging", "--metrics"):
        _add_boolean(start, taken, help=argparse.SUPPRESS)
    start.add_argument("--profiler-credentials-file", help=argparse.SUPPRESS)
    parsed = parser.parse_args(args)
    if parsed.command == "version":
        sys.stdout.write(f"{version}\n")
        raise SystemExit(0)
    if parsed.tls and not (parsed.cert_file and parsed.key_file):
        start.error("--tls needs --cert-file and --key-file")
    return Flags(
        piped=parsed.piped_plugin_service,
        config=parsed.config,
        config_fd=parsed.config_fd,
        grace_period=parsed.grace_period,
        tls=parsed.tls,
        cert_file=parsed.cert_file,
        key_file=parsed.key_file,
        log_level=parsed.log_level,
        log_encoding=parsed.log_encoding,
    )


_LEVELS: Final = ("debug", "info", "warn", "error")
_ENCODINGS: Final = ("json", "console", "humanize")


class _Help(argparse.HelpFormatter):
    """Help of a fixed width: argparse looks for the terminal's at each start, by large modules."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)


def _boolean(text: str) -> bool:
    """Parses the words that Go's flags accept for true and false."""
    value = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
    try:
        return value[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"not true or false: {text!r}") from None


def _duration(text: str) -> Duration:
    try:
        length = Duration.parse(text)
    except BadValueError as error:
        raise argparse.ArgumentTypeError(format_bad_value(error)) from None
    if length <= Duration():
        raise argparse.ArgumentTypeError(f"must be longer than 0s: {text!r}")
    return length


def _add_boolean(parser: argparse.ArgumentParser, name: str, *, help: str) -> None:
    """Adds a flag as in Go: `--flag` alone means true and `--flag=false` turns it off."""
    parser.add_argument(name, nargs="?", const=True, default=False, type=_boolean, help=help)
