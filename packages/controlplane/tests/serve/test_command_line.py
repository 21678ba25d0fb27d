# SPDX-License-Identifier: Apache-2.0
"""The command line: upstream's flags start our server, and projects are made offline."""

import asyncio
import getpass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pipecd_controlplane.cli import cli
from pipecd_controlplane.serve import config, flags
from pipecd_controlplane.store.audit import Audit, AuditFilter
from pipecd_controlplane.store.open import open_database
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_model.config.values import Duration
from pipecd_model.errors import ConfigError, StateError
from pipecd_test_support.balancer import make_proxy_header
from pipecd_test_support.chosen_store import add_store_flags, choose_database
from pipecd_test_support.controlplane_process import RunServer
from pipecd_wire.pipecd.api.api_pb2 import AuditRecord

UPSTREAM = [
    "--piped-api-port=9080",
    "--web-api-port=9081",
    "--http-port=9082",
    "--api-port=9083",
    "--envoy-authz-port=9086",
    "--cache-address=cache:6379",
    "--enable-grpc-reflection=false",
    "--profile=false",
    "--profile-debug-logging=false",
    "--grace-period=30s",
    "--tls=false",
    "--insecure-cookie=true",
    "--log-level=info",
    "--log-encoding=json",
    "--metrics=true",
]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, arguments)


async def test_a_command_line_of_upstreams_starts_the_server(
    server: RunServer, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 64)
    document = tmp_path / "control-plane.yaml"
    document.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n"
        "  address: http://pipecd.example.com\n  projects:\n    - id: quickstart\n"
        "      staticAdmin:\n        username: hello-pipecd\n"
        f"        passwordHash: {'$2a$10$' + 'x' * 53}\n"
    )
    async with server(
        tmp_path / "data",
        *UPSTREAM,
        f"--encryption-key-file={key}",
        f"--config-file={document}",
    ) as running:
        host, _, port = running.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"ok")
        writer.close()
    assert not (tmp_path / "data" / "encryption.key").exists()


def test_flags_without_a_meaning_are_said_and_others_are_not() -> None:
    @click.command()
    @flags.meaningless
    def command(**given: Any) -> None:
        flags.warn_of(given)

    result = CliRunner().invoke(command, ["--api-port=1", "--profile"])

    assert result.exit_code == 0
    assert "--api-port has no meaning here: one address carries everything" in result.stderr
    assert "--profile has no meaning here" in result.stderr
    assert "cache" not in result.stderr


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("1m30s", 90.0), ("10", 10.0), ("0.5", 0.5), ("0", 0.0)]
)
def test_times_are_taken_as_go_writes_them_and_as_seconds(text: str, seconds: float) -> None:
    assert flags.WAIT.convert(text, None, None).total_seconds() == seconds


@pytest.mark.parametrize("text", ["soon", "-1", "-3s", "nan", "1e300"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        flags.WAIT.convert(text, None, None)


def test_ops_has_nothing_to_do_and_says_so() -> None:
    result = run("ops", "--http-port=9082", "--config-file", "nothing.yaml")

    assert result.exit_code == 0
    assert "on SQLite the server runs the timed jobs itself" in result.output


def test_a_server_without_a_folder_is_refused() -> None:
    result = run("server")

    assert result.exit_code == 2
    assert "--data-dir is missing" in result.output


def test_the_file_may_name_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    head = "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n  datastore:\n"
    store = "    type: SQLITE\n    config:\n      path: {path}\n"
    file.write_text(head + store.format(path=tmp_path / "data" / "pipecd.db"))
    assert config.read(file).data_dir == tmp_path / "data"

    file.write_text(head + store.format(path=tmp_path / "other.db"))
    with pytest.raises(ConfigError, match="must be called"):
        config.read(file)
    file.write_text(head + "    type: POSTGRESQL\n    config:\n      url: postgresql://x\n")
    told = config.read(file)
    assert told.data_dir is None
    assert told.postgres is not None
    assert told.postgres.url == "postgresql://x"


@pytest.fixture
def where(store_kind: str, tmp_path: Path) -> list[str]:
    """The flags for a data folder, and for the database that keeps its rows."""
    folder = tmp_path / "data"
    folder.mkdir()
    return ["--data-dir", str(folder), *add_store_flags(folder)]


def test_projects_are_made_and_their_passwords_reset_while_the_server_is_stopped(
    where: list[str], tmp_path: Path
) -> None:
    made = run("project", "add", "shop", *where, "--shared-sso", "ours")
    assert made.exit_code == 0, made.output
    lines = dict(line.split(" ", 1) for line in made.stdout.splitlines())
    assert lines["project"] == "shop"
    assert len(lines["password"]) == 30

    again = run("project", "add", "shop", *where)
    assert again.exit_code != 0
    reset = run("project", "reset-password", "shop", *where)
    assert lines["password"] not in reset.output
    listed = run("project", "list", *where)
    assert listed.output.split("\t")[:3] == ["shop", "admin", "ours"]

    records = asyncio.run(read_audit(tmp_path / "data", "shop"))
    assert {(each.actor_kind, each.actor) for each in records} == {
        (AuditRecord.OPERATOR, getpass.getuser())
    }
    assert list(dict.fromkeys(each.action for each in records)) == ["AddProject", "ResetPassword"]
    assert lines["password"] not in str(records)


async def read_audit(folder: Path, project_id: str) -> list[AuditRecord]:
    async with open_database(choose_database(folder), on_commit=lambda _changes: None) as database:
        found = await Audit(database).page(
            project_id, AuditFilter(oldest_first=True), limit=100, cursor=""
        )
        return found.items


@pytest.mark.parametrize(
    "command",
    [("take-over-objects",), ("project", "list"), ("project", "reset-password", "shop")],
    ids=" ".join,
)
def test_a_folder_without_a_database_is_said_and_gets_none(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    made = run(*command, "--data-dir", str(tmp_path))

    assert isinstance(made.exception, StateError)
    assert str(made.exception) == f"there is no database '{tmp_path}/pipecd.db'"
    assert list(tmp_path.iterdir()) == []


def test_a_new_project_comes_with_what_to_do_next(where: list[str]) -> None:
    address = "https://pipecd.example.com"
    made = run("project", "add", "shop", *where, "--address", address)

    assert f"pipectl login {address} --project shop --username admin" in made.stderr
    for step in ("pipecd server", "pipectl piped register", "projectID: shop", "pipectl api-key"):
        assert step in made.stderr


def test_the_password_of_a_new_project_can_go_to_a_file_of_its_user(
    where: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "shop.password"
    made = run("project", "add", "shop", *where, "--password-file", str(file))
    assert made.exit_code == 0, made.output
    password = file.read_text()
    assert password.strip() not in made.output
    assert file.stat().st_mode & 0o777 == 0o600

    kept = run("project", "add", "other", *where, "--password-file", str(file))
    assert kept.exit_code != 0
    assert file.read_text() == password
    new = tmp_path / "new.password"
    twice = run("project", "add", "shop", *where, "--password-file", str(new))
    assert twice.exit_code != 0
    assert not new.exists()


@pytest.mark.parametrize("name", ["a,b", "../x", "a b", "x" * 200, "-x", "a\x1b[2J"])
def test_a_name_that_no_token_could_carry_is_no_project(tmp_path: Path, name: str) -> None:
    made = run("project", "add", "--data-dir", str(tmp_path), "--", name)

    assert isinstance(made.exception, ConfigError)


@pytest.mark.parametrize(
    ("limits", "flags_given", "told"),
    [
        ({"tls_handshake_timeout": Duration(seconds=3)}, {}, "spec.limits.tlsHandshakeTimeout"),
        ({"max_admin_connections": 8}, {}, "spec.limits.maxAdminConnections"),
        ({"tls_handshake_timeout": Duration(seconds=3)}, {"with_tls": True}, ""),
        ({"max_admin_connections": 8}, {"with_admin_port": True}, ""),
        ({}, {}, ""),
    ],
)
def test_a_limit_without_effect_is_said(
    capsys: pytest.CaptureFixture[str], limits: Any, flags_given: dict[str, bool], told: str
) -> None:
    where = {"with_tls": False, "with_admin_port": False} | flags_given

    config.warn_of_limits(FrontLimitsConfig(**limits), **where)

    said = capsys.readouterr().err
    assert (f"warning: {told} has no effect" in said) if told else (said == "")


async def test_limits_of_the_file_count(server: RunServer, tmp_path: Path) -> None:
    document = tmp_path / "control-plane.yaml"
    document.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n  limits: {maxURLBytes: 4096}\n"
    )
    async with server(tmp_path / "data", f"--config-file={document}") as running:
        host, _, port = running.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 414 ")
        writer.close()
        await writer.wait_closed()


async def test_the_proxy_protocol_of_the_file_counts(server: RunServer, tmp_path: Path) -> None:
    document = tmp_path / "control-plane.yaml"
    document.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\n"
        "spec: {trustedProxies: [127.0.0.9], proxyProtocol: true}\n"
    )
    header = make_proxy_header(2, ("203.0.113.7", 40_000), ("203.0.113.1", 443))
    async with server(tmp_path / "data", f"--config-file={document}") as running:
        host, _, port = running.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.9", 0))
        writer.write(header + b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()
