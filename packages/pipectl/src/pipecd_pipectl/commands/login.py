# SPDX-License-Identifier: Apache-2.0
"""`pipectl login`, `logout` and `whoami`: sessions of people."""

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipecd_model.errors import PipecdError, UnavailableError
from pipecd_pipectl.addresses import PORTS, Address, parse_address
from pipecd_pipectl.browser import has_display, open_page
from pipecd_pipectl.client import (
    CERT_FILE_OPTION,
    CONTEXT_OPTION,
    INSECURE_OPTION,
    Client,
    open_client,
    use_client,
)
from pipecd_pipectl.connection import (
    ConnectionFlags,
    ControlPlaneConnection,
    choose_connection,
    read_roots,
)
from pipecd_pipectl.contexts import Context, ContextStore
from pipecd_pipectl.output import echo, output_option, print_data, print_fields, wants_data, when
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.rpc import CallError, call, is_local

if TYPE_CHECKING:
    from pipecd_pipectl.signing_in import ShownCode, SignedIn

DEFAULT_PROJECT = "default"


@click.command()
@click.argument("address", required=False)
@click.option("--project", default="", help="The project to sign in to.")
@click.option("--username", help="Sign in with a name and a password, without a browser.")
@click.option("--password-stdin", is_flag=True, help="Read the password from the standard input.")
@click.option("--no-browser", is_flag=True, help="Print the address, open no browser.")
@CONTEXT_OPTION
@INSECURE_OPTION
@CERT_FILE_OPTION
def login(
    *,
    address: str | None,
    project: str,
    username: str | None,
    password_stdin: bool,
    no_browser: bool,
    context_name: str | None,
    insecure: bool,
    cert_file: Path | None,
) -> None:
    """Sign in to a control plane, and make it the current context.

    ADDRESS is HOST:PORT or a URL; without it, the control plane of the context. Prints a code to
    type in a browser, where you sign in with a password or through single sign-on; with --username
    it asks for the password here.

    \b
    Examples:
      pipectl login https://pipecd.example.com
      pipectl login pipecd.example.com:8080 --project shop --username admin
    """
    if password_stdin and not username:
        raise click.UsageError("--password-stdin needs --username")
    store = ContextStore()
    address = address or os.environ.get("PIPECTL_ADDRESS")
    if address:
        parsed = parse_address(address, insecure=insecure)
        known = _find_at(store, parsed)
    else:
        known = _find_named(store, context_name)
        parsed = parse_address(known.address, insecure=insecure or known.insecure)
        project = project or known.project
    if cert_file is None and known is not None and known.cert_file:
        cert_file = Path(known.cert_file)
    if parsed.insecure and not is_local(parsed.target):
        echo(f"warning: {parsed.url} is without TLS: others can read along", err=True)
    roots = read_roots(cert_file)
    password = _ask_password(stdin=password_stdin) if username else ""
    signed_in = _sign_in(parsed, roots, project, username, password, opens_browser=not no_browser)
    _keep(store, parsed, cert_file, signed_in, context_name)


def _find_at(store: ContextStore, address: Address) -> Context | None:
    """Returns a context of a control plane; None when it is new."""
    contexts = map(store.get, store.list_names())
    return next((each for each in contexts if each.address == address.target), None)


def _find_named(store: ContextStore, name: str | None) -> Context:
    """Returns the context that is signed in to again. Raises click.UsageError without one."""
    name = name or store.find_current_name()
    if not name:
        raise click.UsageError("no control plane given: pipectl login ADDRESS")
    return store.get(name)


def _ask_password(*, stdin: bool) -> str:
    if stdin:
        return sys.stdin.readline().rstrip("\r\n")
    return str(click.prompt("Password", hide_input=True, err=True))


def _sign_in(
    address: Address,
    roots: bytes | None,
    project: str,
    username: str | None,
    password: str,
    *,
    opens_browser: bool,
) -> "SignedIn":
    from pipecd_pipectl.signing_in import open_sign_in  # noqa: PLC0415 - an HTTP client

    def show(code: "ShownCode") -> None:
        echo(f"Open    {code.url}", err=True)
        echo(f"Code    {code.code}   (good for {code.minutes} minutes)", err=True)
        if opens_browser and has_display():
            open_page(code.url)
        echo("Waiting for you to confirm it there; Ctrl-C to give up.", err=True)

    try:
        with open_sign_in(address, roots) as client:
            if username:
                return client.sign_in_with_password(project or DEFAULT_PROJECT, username, password)
            return client.sign_in_with_browser(
                show, project, warn=lambda text: echo(f"warning: {text}", err=True)
            )
    except UnavailableError:
        asyncio.run(_explain_unreachable(address, roots))
        raise


async def _explain_unreachable(address: Address, roots: bytes | None) -> None:
    """Raises UnavailableError with the reason, when gRPC does not reach the address either."""
    nobody = ControlPlaneConnection(address=address.target, insecure=address.insecure, roots=roots)
    try:
        async with open_client(nobody) as client:
            await call(client.access.ListSessions, access_pb2.ListSessionsRequest())
    except CallError:
        return  # it was reached: nobody is let in without a credential


def _keep(
    store: ContextStore,
    address: Address,
    cert_file: Path | None,
    signed_in: "SignedIn",
    name: str | None,
) -> None:
    context = Context(
        address=address.target,
        insecure=address.insecure,
        cert_file="" if cert_file is None else str(cert_file.absolute()),
        project=signed_in.project,
        subject=signed_in.subject,
        session=signed_in.session,
        expires_at=signed_in.expires_at,
    )
    name = name or _find_name(store, context, address)
    store.save(name, context)
    store.use(name)
    echo(
        f"signed in as {signed_in.subject} to the project {signed_in.project},"
        f" until {when(signed_in.expires_at)}; the current context is {name}"
    )
    for variable in ("PIPECTL_API_KEY", "PIPECTL_API_KEY_FILE", "PIPECTL_CONTEXT"):
        if os.environ.get(variable) not in {None, "", name}:
            echo(f"warning: {variable} is set, and wins over this session", err=True)


def _find_name(store: ContextStore, context: Context, address: Address) -> str:
    """Returns the name of a context of this control plane and project, old or new."""
    for name in store.list_names():
        known = store.get(name)
        if (known.address, known.project) == (context.address, context.project):
            return name
    is_usual = address.port in PORTS.values()
    return f"{context.project}@{address.host if is_usual else address.target}"


@click.command()
@CONTEXT_OPTION
@click.option(
    "--local", is_flag=True, help="Forget the session here, also when the server is not reached."
)
def logout(*, context_name: str | None, local: bool) -> None:
    """End the session of the context, on the server and here."""
    store = ContextStore()
    name = context_name or store.find_current_name()
    if not name:
        raise click.UsageError("there is no current context: see pipectl context list")
    context = store.get(name)
    if not context.session:
        echo(f"the context {name} has no session")
        return
    if not local:
        connection = choose_connection(ConnectionFlags(context=name), store)
        asyncio.run(_end_session(connection, context))
    store.save(
        name,
        Context(
            address=context.address,
            insecure=context.insecure,
            cert_file=context.cert_file,
            project=context.project,
        ),
    )
    if local:
        echo(f"forgot the session of {name}; on the server it ends {when(context.expires_at)}")
    else:
        echo(f"signed out of {name}")


async def _end_session(connection: ControlPlaneConnection, context: Context) -> None:
    session_id = context.session.partition(".")[0]
    request = access_pb2.RevokeSessionRequest(session_id=session_id)
    try:
        async with open_client(connection) as client:
            await call(client.access.RevokeSession, request)
    except UnavailableError as error:
        raise UnavailableError(
            str(error), hint=f"{error.hint}; `pipectl logout --local` forgets it here only"
        ) from None
    except PipecdError as error:
        if error.status != "UNAUTHENTICATED":
            raise  # else it had ended already


@click.command()
@output_option
@use_client
async def whoami(client: Client, *, output: str) -> None:
    """Print who calls: the person of the session, or the API key."""
    connection = client.connection
    if connection.session:
        told = await call(client.access.ListSessions, access_pb2.ListSessionsRequest())
        (own,) = [each for each in told.sessions if each.id == told.current_id]
        kind = access_pb2.Session.Via.Name(own.via).lower().replace("_", " ")
        fields = {
            "address": connection.address,
            "project": own.project_id,
            "user": own.subject,
            "signed in by": kind,
            "groups": ", ".join(own.groups),
            "until": when(own.expires_at),
            "context": connection.context_name,
        }
    else:
        await call(client.api.ListApplications, pb.ListApplicationsRequest(limit=1))
        fields = {
            "address": connection.address,
            "API key": connection.api_key.partition(".")[0],
        }
    if wants_data(output):
        data = {key.replace(" ", "_").lower(): value for key, value in fields.items()}
        print_data(data, output)
    else:
        print_fields(list(fields.items()))
