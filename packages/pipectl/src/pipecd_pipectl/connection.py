# SPDX-License-Identifier: Apache-2.0
"""Which control plane a command talks to, and as whom: from flags, variables and contexts.

What is said on the command line or in the environment wins over the context. A session is sent to
the address that it was made at and to no other.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from pipecd_model.errors import DeniedError, PipecdError, UnauthenticatedError, UnavailableError
from pipecd_pipectl.addresses import Address, parse_address
from pipecd_pipectl.contexts import Context, ContextStore
from pipecd_wire.headers import AUTHORIZATION, COOKIE, format_api_key, format_session
from pipecd_wire.rpc import CallError, ClientTls, explain_unreachable, has_certificate

LONGEST_KEY: Final = 1000
LOGIN: Final = "pipectl login"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFlags:
    """What the command line and the environment say."""

    address: str | None = None
    api_key: str | None = None
    api_key_file: Path | None = None
    insecure: bool = False
    cert_file: Path | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneConnection:
    """The address of the control plane, and the credentials of the caller."""

    address: str
    api_key: str = ""
    session: str = ""
    insecure: bool = False
    roots: bytes | None = None
    context_name: str = ""
    """The context that the session is of."""

    @property
    def tls(self) -> ClientTls | None:
        return None if self.insecure else ClientTls(roots=self.roots)

    @property
    def credentials(self) -> list[tuple[str, str]]:
        """The metadata of each call."""
        if self.api_key:
            return [(AUTHORIZATION, format_api_key(self.api_key))]
        return [(COOKIE, format_session(self.session))]

    def explain(self, error: CallError) -> Exception:
        """Returns what to say of a call that failed; the error itself when there is no more."""
        if trouble := explain_unreachable(error, tls=not self.insecure):
            if trouble.is_answer:
                return UnavailableError(
                    f"the control plane at {self.address} cannot do that now: {trouble.cause}"
                )
            return UnavailableError(
                f"cannot reach the control plane at {self.address}: {trouble.cause}",
                hint=trouble.hint,
            )
        if not self.session:
            return error
        return _explain_session(self.context_name, error)


def _explain_session(name: str, error: CallError) -> Exception:
    if error.status == "UNAUTHENTICATED":
        return UnauthenticatedError(
            f"the session of the context {name!r} has ended", hint=f"sign in again: {LOGIN}"
        )
    if error.status == "PERMISSION_DENIED" and error.message == "Permission Denied":
        return DeniedError(
            f"you have no right to that in the context {name!r}",
            hint="ask an admin of the project for a role that has it",
        )
    return error


def require_session(connection: ControlPlaneConnection, what: str) -> None:
    """Raises UnauthenticatedError with `what` for a caller with an API key."""
    if not connection.session:
        raise UnauthenticatedError(
            what, hint=f"sign in with `{LOGIN}`, and call without an API key"
        )


def choose_connection(flags: ConnectionFlags, store: ContextStore) -> ControlPlaneConnection:
    """Returns the connection. Raises click.UsageError or PipecdError when something is missing."""
    api_key = read_api_key(flags)
    if api_key and flags.address:
        address = parse_address(flags.address, insecure=flags.insecure)
        return _connect_with_key(address, api_key, read_roots(flags.cert_file))
    name, context = find_context(flags, store)
    if context is None:
        if flags.address:
            raise click.UsageError(
                f"no API key given, and nobody is signed in at {flags.address}:"
                f" set --api-key or --api-key-file, or run `{LOGIN} {flags.address}`"
            )
        raise click.UsageError(
            f"no control plane given: run `{LOGIN} ADDRESS`, or set --address or PIPECTL_ADDRESS"
        )
    roots = read_roots(flags.cert_file or (Path(context.cert_file) if context.cert_file else None))
    if api_key:
        address = parse_address(context.address, insecure=context.insecure or flags.insecure)
        return _connect_with_key(address, api_key, roots)
    if not context.session:
        raise UnauthenticatedError(
            f"the context {name!r} has no session",
            hint=f"sign in: {LOGIN} --context {name}, or give an API key",
        )
    return ControlPlaneConnection(
        address=context.address,
        session=context.session,
        insecure=context.insecure,
        roots=roots,
        context_name=name,
    )


def find_context(flags: ConnectionFlags, store: ContextStore) -> tuple[str, Context | None]:
    """Returns the context that the flags mean, with its name; None without one.

    With an address, it is one at that address: the named or current one rather than others.
    """
    name = flags.context or store.find_current_name()
    chosen = store.get(name) if name else None
    if not flags.address:
        return name, chosen
    address = parse_address(flags.address, insecure=flags.insecure)
    if chosen is not None and _is_at(chosen, address):
        return name, chosen
    if flags.context:
        raise click.UsageError(
            f"the context {name!r} is of {chosen.address if chosen else ''}, not of {flags.address}"
        )
    for other in store.list_names():
        context = store.get(other)
        if _is_at(context, address) and context.session:
            return other, context
    return "", None


def _is_at(context: Context, address: Address) -> bool:
    return (context.address, context.insecure) == (address.target, address.insecure)


def _connect_with_key(
    address: Address, api_key: str, roots: bytes | None
) -> ControlPlaneConnection:
    return ControlPlaneConnection(
        address=address.target, api_key=api_key, insecure=address.insecure, roots=roots
    )


def read_api_key(flags: ConnectionFlags) -> str:
    """Returns the API key that was given; empty without one. Raises click.UsageError."""
    if flags.api_key and flags.api_key_file:
        raise click.UsageError("--api-key and --api-key-file exclude each other")
    if flags.api_key_file is not None:
        return _read_key_file(flags.api_key_file)
    key = (flags.api_key or "").strip()
    if why := _find_fault(key):
        raise click.UsageError(f"--api-key is no API key: {why}")
    return key


def _read_key_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            key = file.read(2 * LONGEST_KEY).decode().strip()
        why = _find_fault(key) if key else "it is empty"
    except UnicodeDecodeError:
        why = "it is no text"
    except OSError as error:
        why = str(error.strerror)
    if why:
        raise click.UsageError(
            f"the file {str(path)!r} holds no API key: {why}; it is one line, as"
            " `pipectl api-key create --key-file` writes it"
        )
    return key


def _find_fault(key: str) -> str:
    if len(key) > LONGEST_KEY:
        return "it is too long"
    if len(key.splitlines()) > 1:
        return "it has more than one line"
    if not key.isascii() or not key.isprintable() or " " in key:
        return "it has characters that no key has"
    return ""


def read_roots(path: Path | None) -> bytes | None:
    """Returns the certificates to trust; None for the system's. Raises PipecdError."""
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PipecdError(
            f"cannot read the certificates in {str(path)!r}: {error.strerror}"
        ) from None
    if not has_certificate(data):
        raise click.UsageError(f"the file {str(path)!r} holds no certificate in PEM")
    return data
