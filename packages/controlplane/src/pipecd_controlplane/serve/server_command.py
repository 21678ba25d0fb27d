# SPDX-License-Identifier: Apache-2.0
"""The command `pipecd server`: flags and the configuration file become settings.

What it needs is imported when it runs, so that `pipecd --help` is fast.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipecd_controlplane.serve import flags
from pipecd_controlplane.serve.server_flags import ServerFlags, parse_address, server_flags

if TYPE_CHECKING:
    from pipecd_controlplane.app import RunningServer
    from pipecd_controlplane.http.server import CertificateFiles
    from pipecd_controlplane.serve.config import FromFile
    from pipecd_controlplane.settings import ServerSettings
    from pipecd_wire.rpc import Observe

DIE_AFTER_COMMIT = "PIPECD_CHAOS_DIE_AFTER_COMMIT"
"""For tests only: the path of an RPC after whose first success the server kills itself."""
ARMED = "PIPECD_CHAOS_ARMED"
"""For tests only: a folder whose files name such RPCs, and come and go while the server runs."""


@click.command()
@server_flags
def server(given: ServerFlags) -> None:
    """Run the control plane until it is told to stop (SIGTERM, Ctrl-C).

    The first start in an empty folder makes a project, and two files that only you can read:
    admin.key, an API key that may read and write, and admin.password, for signing in as `admin`.
    """
    from pipecd_controlplane import app  # noqa: PLC0415
    from pipecd_controlplane.http.descriptors import raise_limit  # noqa: PLC0415
    from pipecd_controlplane.serve import config  # noqa: PLC0415
    from pipecd_runtime import logs  # noqa: PLC0415

    json_lines = None if given.log_encoding is None else given.log_encoding == "json"
    logs.configure(flags.LEVELS[given.log_level], json_lines=json_lines)
    flags.warn_of(given.ignored)
    given.check()
    told = config.read(given.config_file)
    folder = given.data_dir or told.data_dir
    if folder is None:
        raise click.UsageError("--data-dir is missing: where shall everything be kept?")
    config.warn_of_limits(
        told.limits,
        with_tls=given.tls_cert is not None,
        with_admin_port=given.admin_port is not None,
    )
    config.warn_of_unused_file(told, folder)
    raise_limit()
    asyncio.run(app.run(_make_settings(given, told, folder), _announce))


def _make_settings(given: ServerFlags, told: "FromFile", folder: Path) -> "ServerSettings":
    from pipecd_controlplane.serve.folding import fold_lines_of_callers  # noqa: PLC0415
    from pipecd_controlplane.settings import ServerSettings  # noqa: PLC0415
    from pipecd_controlplane.usecases.leases import LeaseTimes  # noqa: PLC0415

    host, port = parse_address(given.listen)
    return ServerSettings(
        data_dir=folder.absolute(),
        postgres=told.postgres,
        blobs=told.blobs,
        host=host,
        port=port,
        tls=_make_tls(given),
        project_id=given.project,
        public_url=told.public_url,
        projects=told.projects,
        shared_sso=told.shared_sso,
        state_key=told.state_key,
        retention=told.retention,
        limits=told.limits,
        trusted_proxies=told.trusted_proxies,
        proxy_protocol=told.proxy_protocol,
        folded=fold_lines_of_callers(told.limits),
        grace_seconds=given.grace_period.total_seconds(),
        drain_seconds=given.drain_period.total_seconds(),
        lease_times=LeaseTimes(lease=given.lease_time, take_over=given.take_over_after),
        encryption_key_files=given.encryption_key_file,
        insecure_cookie=given.insecure_cookie,
        static_dir=given.static_dir,
        admin_host=given.admin_host,
        admin_port=given.admin_port,
        metrics=given.metrics,
        otlp_endpoint=given.otlp_endpoint,
        observers=_chaos(os.environ.get(DIE_AFTER_COMMIT, ""), os.environ.get(ARMED, "")),
    )


def _make_tls(given: ServerFlags) -> "CertificateFiles | None":
    from pipecd_controlplane.http.server import CertificateFiles  # noqa: PLC0415

    if not given.tls_cert or not given.tls_key:
        return None
    return CertificateFiles(cert_file=given.tls_cert, key_file=given.tls_key)


def _chaos(path: str, armed: str) -> "tuple[Observe, ...]":
    if not path and not armed:
        return ()
    from pipecd_controlplane.ops.chaos import die_after_commit, die_when_armed  # noqa: PLC0415

    if armed:
        click.echo(f"warning: {ARMED} is set: the server dies where {armed} says", err=True)
        return (die_when_armed(armed),)
    click.echo(f"warning: {DIE_AFTER_COMMIT} is set: the server dies after {path}", err=True)
    return (die_after_commit(path),)


def _announce(running: "RunningServer") -> None:
    """Say where it is, to a person and to whatever program has started it."""
    click.echo(f"pipecd server listening on {running.address}")
    click.echo(f"data folder {running.data_dir}")
    if running.admin_key_file.exists():
        click.echo(f"admin API key file {running.admin_key_file}")
    else:
        click.echo("no admin API key file here: the first start wrote it elsewhere, or it is gone")
    if running.admin_address:
        click.echo(f"metrics at http://{running.admin_address}/metrics")
    sys.stdout.flush()
