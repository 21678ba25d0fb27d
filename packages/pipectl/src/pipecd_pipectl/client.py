# SPDX-License-Identifier: Apache-2.0
"""The client of a command: its flags become gRPC stubs, and a failed call becomes a sentence."""

import asyncio
import functools
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, cast

import click

from pipecd_pipectl.completions import complete_contexts
from pipecd_pipectl.connection import ConnectionFlags, ControlPlaneConnection, choose_connection
from pipecd_pipectl.contexts import ContextStore
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.headers import IDEMPOTENCY_KEY_HEADER
from pipecd_wire.pipecd.api.access_pb2_grpc import AccessServiceStub, ApiKeyServiceStub
from pipecd_wire.pipecd.api.api_pb2_grpc import (
    ApplicationServiceStub,
    DeploymentServiceStub,
    PipedServiceStub,
    ProjectServiceStub,
)
from pipecd_wire.pipecd.api.chains_pb2_grpc import ChainServiceStub
from pipecd_wire.pipecd.api.logs_pb2_grpc import StageLogServiceStub
from pipecd_wire.pipecd.api.overview_pb2_grpc import OverviewServiceStub
from pipecd_wire.pipecd.api.repositories_pb2_grpc import RepositoryServiceStub
from pipecd_wire.pipecd.api.windows_pb2_grpc import WindowServiceStub
from pipecd_wire.rpc import CallError, connect
from pipecd_wire.webservice.service_pb2_grpc import WebServiceStub

if TYPE_CHECKING:  # these types exist for the checker alone
    from pipecd_wire.apiservice.service_pb2_grpc import APIServiceAsyncStub
    from pipecd_wire.pipecd.api.access_pb2_grpc import (
        AccessServiceAsyncStub,
        ApiKeyServiceAsyncStub,
    )
    from pipecd_wire.pipecd.api.api_pb2_grpc import (
        ApplicationServiceAsyncStub,
        DeploymentServiceAsyncStub,
        PipedServiceAsyncStub,
        ProjectServiceAsyncStub,
    )
    from pipecd_wire.pipecd.api.chains_pb2_grpc import ChainServiceAsyncStub
    from pipecd_wire.pipecd.api.logs_pb2_grpc import StageLogServiceAsyncStub
    from pipecd_wire.pipecd.api.overview_pb2_grpc import OverviewServiceAsyncStub
    from pipecd_wire.pipecd.api.repositories_pb2_grpc import RepositoryServiceAsyncStub
    from pipecd_wire.pipecd.api.windows_pb2_grpc import WindowServiceAsyncStub
    from pipecd_wire.webservice.service_pb2_grpc import WebServiceAsyncStub

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The services a command can call. All but the last two take API keys and sessions alike."""

    connection: ControlPlaneConnection
    api: "APIServiceAsyncStub"
    applications: "ApplicationServiceAsyncStub"
    chains: "ChainServiceAsyncStub"
    deployments: "DeploymentServiceAsyncStub"
    stage_logs: "StageLogServiceAsyncStub"
    overview: "OverviewServiceAsyncStub"
    pipeds: "PipedServiceAsyncStub"
    projects: "ProjectServiceAsyncStub"
    repositories: "RepositoryServiceAsyncStub"
    windows: "WindowServiceAsyncStub"
    access: "AccessServiceAsyncStub"
    api_keys: "ApiKeyServiceAsyncStub"
    """For people who are signed in: a key makes no other."""
    web: "WebServiceAsyncStub"
    """For people who are signed in."""


@asynccontextmanager
async def open_client(connection: ControlPlaneConnection) -> AsyncIterator[Client]:
    """Yields the client of a connection; a call that fails in the block is explained.

    Raises PipecdError or CallError.
    """
    credentials = connection.credentials
    channel = connect(connection.address, tls=connection.tls, metadata=lambda: credentials)
    async with channel as opened:
        client = Client(
            connection=connection,
            api=APIServiceStub(opened),
            applications=ApplicationServiceStub(opened),
            chains=ChainServiceStub(opened),
            deployments=DeploymentServiceStub(opened),
            stage_logs=StageLogServiceStub(opened),
            overview=OverviewServiceStub(opened),
            pipeds=PipedServiceStub(opened),
            projects=ProjectServiceStub(opened),
            repositories=RepositoryServiceStub(opened),
            windows=WindowServiceStub(opened),
            access=AccessServiceStub(opened),
            api_keys=ApiKeyServiceStub(opened),
            web=WebServiceStub(opened),
        )
        try:
            yield client
        except CallError as error:
            explained = connection.explain(error)
            if explained is error:
                raise
            raise explained from None


def idempotency_key() -> list[tuple[str, str]]:
    """Returns metadata with a new idempotency key: a call that is repeated acts once."""
    return [(IDEMPOTENCY_KEY_HEADER, str(uuid.uuid4()))]


def use_client(
    command: Callable[Concatenate[Client, P], Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """Adds the connection flags to a command, which is run with the client they describe."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        connection = take_connection(cast(dict[str, Any], kwargs))

        async def run_connected() -> None:
            async with open_client(connection) as client:
                await command(client, *args, **kwargs)

        asyncio.run(run_connected())

    return add_connection_options(run)


def add_connection_options(run: Callable[P, None]) -> Callable[P, None]:
    """Adds the connection flags to a command, which reads them with `take_connection`."""
    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def take_connection(flags: dict[str, Any]) -> ControlPlaneConnection:
    """Takes the connection flags out of a command's arguments, and reads them.

    Raises click.UsageError or PipecdError for what is missing or wrong.
    """
    given = ConnectionFlags(
        address=flags.pop("address"),
        api_key=flags.pop("api_key"),
        api_key_file=flags.pop("api_key_file"),
        insecure=flags.pop("insecure"),
        cert_file=flags.pop("cert_file"),
        context=flags.pop("context_name"),
    )
    return choose_connection(given, ContextStore())


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

CONTEXT_OPTION = click.option(
    "--context",
    "context_name",
    envvar="PIPECTL_CONTEXT",
    metavar="NAME",
    help="A context of `pipectl context list`, rather than the current one.",
    shell_complete=complete_contexts,
)
INSECURE_OPTION = click.option(
    "--insecure", envvar="PIPECTL_INSECURE", is_flag=True, help="Connect without TLS."
)
CERT_FILE_OPTION = click.option(
    "--cert-file",
    envvar="PIPECTL_CERT_FILE",
    type=_FILE,
    help="CA certificates (PEM) to trust instead of the system's.",
)

_OPTIONS = (
    CONTEXT_OPTION,
    click.option(
        "--address",
        envvar="PIPECTL_ADDRESS",
        help="Control plane: HOST:PORT, or a URL. Wins over the context.",
    ),
    click.option("--api-key", envvar="PIPECTL_API_KEY", help="An API key. Wins over a session."),
    click.option(
        "--api-key-file", envvar="PIPECTL_API_KEY_FILE", type=_FILE, help="File with the API key."
    ),
    INSECURE_OPTION,
    CERT_FILE_OPTION,
)
