# SPDX-License-Identifier: Apache-2.0
"""The command line: what is wrong is a sentence and an exit code, never a traceback."""

import base64
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pipecd_piped.cli import cli
from pipecd_runtime.lazy_commands import LazyGroup
from pipecd_test_support.command_lines import HEAVY, find_differing_help, find_imports

PIPED = Path(sys.executable).parent / "piped"
CONFIG = """
apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  projectID: project
  pipedID: piped
  apiAddress: localhost:1
  pipedKeyFile: {key}
"""


def run(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [PIPED, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_list_says_of_each_command_what_the_command_says() -> None:
    assert isinstance(cli, LazyGroup)
    assert find_differing_help(cli) == {}


def test_the_list_imports_no_command_and_nothing_heavy() -> None:
    imported = find_imports("pipecd_piped.cli", "--help")

    assert not HEAVY & imported
    assert "pipecd_piped.run_command" not in imported


@pytest.mark.parametrize("word", ["--version", "version"])
def test_the_version_is_printed(word: str) -> None:
    done = run(word)

    assert done.returncode == 0
    assert done.stdout.startswith("piped ")


def test_every_flag_is_explained() -> None:
    done = run("run", "--help")

    assert done.returncode == 0
    for flag in ("--config-file", "--insecure", "--cert-file", "--data-dir", "--grace-period"):
        assert flag in done.stdout
    assert "--plugin-service-port" in done.stdout, "flags that do nothing are named too"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "exactly one of --config-file and --config-data"),
        (["--config-file", "a", "--config-data", "b"], "exactly one of"),
        (["--config-file", "/does/not/exist"], "cannot read '/does/not/exist': No such file"),
        (["--config-data", "%%%"], "--config-data is not base64"),
        (["--config-data", base64.b64encode(b"kind: Piped").decode()], "apiVersion"),
        (["--config-file", "a", "--grace-period", "soon"], "not a duration: 'soon'"),
        (["--config-file", "a", "--admin-port", "70000"], "70000"),
    ],
)
def test_a_wrong_call_exits_2(arguments: list[str], sentence: str) -> None:
    done = run("run", *arguments)

    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_key_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "piped.yaml"
    file.write_text(CONFIG.format(key=tmp_path / "key"))

    done = run("run", "--config-file", file, "--data-dir", tmp_path / "data")

    assert done.returncode == 2
    assert f"cannot read '{tmp_path / 'key'}'" in done.stderr


def test_an_empty_key_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("\n")
    file = tmp_path / "piped.yaml"
    file.write_text(CONFIG.format(key=tmp_path / "key"))

    done = run("run", "--config-file", file, "--data-dir", tmp_path / "data")

    assert done.returncode == 2
    assert "is empty" in done.stderr


def test_a_data_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("key")
    file = tmp_path / "piped.yaml"
    file.write_text(CONFIG.format(key=tmp_path / "key"))

    done = run("run", "--config-file", file, "--data-dir", file)

    assert done.returncode == 2
    assert "piped.yaml" in done.stderr


def test_what_it_cannot_use_in_its_data_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("key")
    file = tmp_path / "piped.yaml"
    file.write_text(CONFIG.format(key=tmp_path / "key"))
    (tmp_path / "data" / "id").mkdir(parents=True)

    done = run("run", "--config-file", file, "--data-dir", tmp_path / "data")

    assert done.returncode == 1
    assert f"{tmp_path / 'data' / 'id'}" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_taken_admin_port_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("key")
    file = tmp_path / "piped.yaml"
    file.write_text(CONFIG.format(key=tmp_path / "key"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(
            *("run", "--config-file", file, "--data-dir", tmp_path / "data"),
            *("--admin-port", str(port)),
        )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"error: cannot serve the admin port 127.0.0.1:{port}: the port is taken by another program"
        " (name another one with --admin-port and --admin-host, or 0 for none)"
    )
    assert "Traceback" not in done.stderr


def test_unknown_keys_are_told_and_do_not_stop_it(tmp_path: Path) -> None:
    """Told before anything else, so that they are seen."""
    file = tmp_path / "piped.yaml"
    file.write_text(CONFIG.format(key=tmp_path / "key") + "  sincInterval: 1m\n")

    done = run("run", "--config-file", file, "--data-dir", tmp_path / "data")

    assert "warning: " in done.stderr
    assert "sincInterval" in done.stderr
