# SPDX-License-Identifier: Apache-2.0
"""The command line that a Go agent writes, and ours."""

from datetime import timedelta
from pathlib import Path

import pytest

from pipecd_sdk._glue.flags import Flags, parse

GO = ["start", "--piped-plugin-service", "localhost:9087", "--config", '{"name":"wait"}']
OURS = ["start", "--piped-plugin-service", "localhost:9087", "--config-fd", "7"]


def flags(args: list[str]) -> Flags:
    return parse(args, name="pipecd-plugin-lab", version="1.2.3")


def test_a_go_agents_command_line_is_understood() -> None:
    found = flags(GO)

    assert found.piped == "localhost:9087"
    assert found.config == '{"name":"wait"}'
    assert found.config_fd is None
    assert found.grace_period == timedelta(seconds=30)
    assert not found.tls


def test_ours_is_understood() -> None:
    found = flags([*OURS, "--grace-period", "1m30s"])

    assert (found.config, found.config_fd) == (None, 7)
    assert found.grace_period == timedelta(seconds=90)


@pytest.mark.parametrize(
    "more",
    [
        ["--enable-grpc-reflection"],
        ["--enable-grpc-reflection=true", "--metrics=false", "--profile", "--metrics"],
        ["--profile-debug-logging", "--profiler-credentials-file", "/x"],
        ["--log-level=debug", "--log-encoding", "json"],
        ["--tls=false", "--cert-file=", "--grace-period=30s"],
    ],
)
def test_all_flags_of_upstreams_plugins_are_taken(more: list[str]) -> None:
    assert flags([*GO, *more]).piped == "localhost:9087"


def test_tls_names_its_files() -> None:
    found = flags([*GO, "--tls", "--cert-file", "/c", "--key-file", "/k"])

    assert (found.tls, found.cert_file, found.key_file) == (True, Path("/c"), Path("/k"))


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["start", "--config", "{}"], "--piped-plugin-service"),
        (["start", "--piped-plugin-service", "x"], "--config --config-fd is required"),
        ([*GO, "--config-fd", "7"], "not allowed with"),
        ([*GO, "--tls"], "--tls needs --cert-file and --key-file"),
        ([*GO, "--grace-period", "soon"], "not a duration: 'soon'"),
        ([*GO, "--grace-period", "0s"], "must be longer than 0s"),
        ([*GO, "--tls=maybe"], "not true or false: 'maybe'"),
        ([*GO, "--unknown"], "--unknown"),
        ([*GO, "--conf", "{}"], "--conf"),
        ([], "COMMAND"),
    ],
)
def test_a_wrong_command_line_is_told_and_ends_with_2(
    args: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        flags(args)

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        flags(["version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == "1.2.3\n"
