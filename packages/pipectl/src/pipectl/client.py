# SPDX-License-Identifier: Apache-2.0
"""The connection of a command: turns its flags into gRPC stubs."""

import asyncio
import functools
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, cast

import click

from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.headers import AUTHORIZATION, IDEMPOTENCY_KEY_HEADER, format_api_key
from pipecd_wire.pipecd.api.api_pb2_grpc import (
    ApplicationServiceStub,
    DeploymentServiceStub,
    PipedServiceStub,
)
from pipecd_wire.rpc import ClientTls, connect

if TYPE_CHECKING:  # these types exist for the checker alone
    from pipecd_wire.apiservice.service_pb2_grpc import APIServiceAsyncStub
    from pipecd_wire.pipecd.api.api_pb2_grpc import (
        ApplicationServiceAsyncStub,
        DeploymentServiceAsyncStub,
        PipedServiceAsyncStub,
    )

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The services a command can call."""

    api: "APIServiceAsyncStub"
    applications: "ApplicationServiceAsyncStub"
    deployments: "DeploymentServiceAsyncStub"
    pipeds: "PipedServiceAsyncStub"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneConnection:
    """The address of the control plane, and the credentials of the caller."""

    address: str
    api_key: str
    insecure: bool
    roots: bytes | None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Client]:
        tls = None if self.insecure else ClientTls(roots=self.roots)
        credentials = [(AUTHORIZATION, format_api_key(self.api_key))]
        async with connect(self.address, tls=tls, metadata=lambda: credentials) as channel:
            yield Client(
                api=APIServiceStub(channel),
                applications=ApplicationServiceStub(channel),
                deployments=DeploymentServiceStub(channel),
                pipeds=PipedServiceStub(channel),
            )


def idempotency_key() -> list[tuple[str, str]]:
    """Returns metadata with a new idempotency key: a call that is repeated acts once."""
    return [(IDEMPOTENCY_KEY_HEADER, str(uuid.uuid4()))]


def use_client(
    command: Callable[Concatenate[Client, P], Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """Adds the connection flags to a command, which is run with the client they describe."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        flags = cast(dict[str, Any], kwargs)
        connection = _connection(
            address=flags.pop("address"),
            api_key=flags.pop("api_key"),
            api_key_file=flags.pop("api_key_file"),
            insecure=flags.pop("insecure"),
            cert_file=flags.pop("cert_file"),
        )

        async def run_connected() -> None:
            async with connection.open() as client:
                await command(client, *args, **kwargs)

        asyncio.run(run_connected())

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def _connection(
    *,
    address: str | None,
    api_key: str | None,
    api_key_file: Path | None,
    insecure: bool,
    cert_file: Path | None,
) -> ControlPlaneConnection:
    if not address:
        raise click.UsageError("no control plane given: set --address or PIPECTL_ADDRESS")
    if api_key and api_key_file:
        raise click.UsageError("--api-key and --api-key-file exclude each other")
    if api_key_file:
        api_key = api_key_file.read_text()
    if not api_key or not api_key.strip():
        raise click.UsageError("no API key given: set --api-key or --api-key-file")
    return ControlPlaneConnection(
        address=address,
        api_key=api_key.strip(),
        insecure=insecure,
        roots=cert_file.read_bytes() if cert_file else None,
    )


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_OPTIONS = (
    click.option("--address", envvar="PIPECTL_ADDRESS", help="Control plane, HOST:PORT."),
    click.option("--api-key", envvar="PIPECTL_API_KEY", help="The API key."),
    click.option(
        "--api-key-file", envvar="PIPECTL_API_KEY_FILE", type=_FILE, help="File with the API key."
    ),
    click.option(
        "--insecure", envvar="PIPECTL_INSECURE", is_flag=True, help="Connect without TLS."
    ),
    click.option("--cert-file", type=_FILE, help="CA certificates to trust, PEM."),
)
