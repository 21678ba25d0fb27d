# SPDX-License-Identifier: Apache-2.0
"""Sign-in: a session of botocore for one deploy target, and its clients. Blocks; runs in threads.

botocore is imported here, at the first use: a plugin that only waits for work does not hold it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

CONNECT_SECONDS: Final = 5
READ_SECONDS: Final = 30
SESSION_NAME: Final = "piped"
RENEW_SECONDS: Final = 30.0
"""How old a sign-in is at least before it is made anew: credentials that stay wrong cost little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """Where to sign in, and as whom."""

    region: str
    profile: str = ""
    credentials_file: str = ""
    role_arn: str = ""
    token_file: str = ""
    endpoint_url: str = ""


class Clients:
    """The clients of one sign-in, by service, each made once. Every method blocks."""

    generation = 0
    """Which sign-in it is: the next one has the next number."""

    def __init__(self, sign_in: SignIn, now: Callable[[], float] = time.monotonic) -> None:
        self._sign_in = sign_in
        self._now = now
        self._opened_at = 0.0
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[str, Any] = {}

    def get(self, service: str) -> Any:
        """Returns the client of a service. Raises the errors of botocore."""
        with self._lock:
            found = self._clients.get(service)
            if found is None:
                if self._session is None:
                    self._session = _open_session(self._sign_in)
                    self._opened_at = self._now()
                found = self._clients[service] = _make_client(
                    self._session, service, self._sign_in, attempts=1
                )
            return found

    def renew(self, generation: int) -> bool:
        """Signs in anew after AWS has refused this sign-in; returns whether there is another one.

        botocore reads a credentials file once: one that was replaced meanwhile is read again.
        """
        with self._lock:
            if self.generation == generation:
                if self._now() - self._opened_at < RENEW_SECONDS:
                    return False
                self._session = None
                self._clients.clear()  # calls that are under way end with theirs
                self.generation += 1
            return True

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()


def _open_session(sign_in: SignIn) -> Any:
    import botocore.session  # noqa: PLC0415 - see above

    session = botocore.session.Session(profile=sign_in.profile or None)
    session.set_config_variable("region", sign_in.region)
    if sign_in.credentials_file:
        session.set_config_variable("credentials_file", sign_in.credentials_file)
    if sign_in.role_arn:
        provider = _make_role_provider(session, sign_in)
        session.get_component("credential_provider").providers.insert(0, provider)
    return session


def _make_role_provider(session: Any, sign_in: SignIn) -> Any:
    """Returns a provider of botocore that takes on the role, and renews its credentials."""
    from botocore import credentials, utils  # noqa: PLC0415 - see above

    # The resolver without our provider in it: who asks for the role.
    own = credentials.CredentialResolver(
        list(session.get_component("credential_provider").providers)
    )
    create_client = partial(
        session.create_client,
        region_name=sign_in.region,
        endpoint_url=sign_in.endpoint_url or None,
    )
    extra = {"RoleSessionName": SESSION_NAME}

    def load() -> Any:
        if sign_in.token_file:
            fetcher = credentials.AssumeRoleWithWebIdentityCredentialFetcher(
                client_creator=create_client,
                web_identity_token_loader=utils.FileWebIdentityTokenLoader(sign_in.token_file),
                role_arn=sign_in.role_arn,
                extra_args=extra,
            )
        else:
            source = own.load_credentials()
            if source is None:
                from botocore.exceptions import NoCredentialsError  # noqa: PLC0415 - see above

                raise NoCredentialsError
            fetcher = credentials.AssumeRoleCredentialFetcher(
                client_creator=create_client,
                source_credentials=source,
                role_arn=sign_in.role_arn,
                extra_args=extra,
            )
        return credentials.DeferredRefreshableCredentials(
            method="pipecd-role", refresh_using=fetcher.fetch_credentials
        )

    class RoleProvider(credentials.CredentialProvider):  # type: ignore[misc]  # it has no types
        METHOD = "pipecd-role"
        CANONICAL_NAME = "PipecdRole"

        def load(self) -> Any:
            return load()

    return RoleProvider()


def _make_client(session: Any, service: str, sign_in: SignIn, *, attempts: int) -> Any:
    from botocore.config import Config  # noqa: PLC0415 - see above

    # One attempt each: `account` tries again, where a stage can be told and cancelled.
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        user_agent_extra="pipecd",
    )
    return session.create_client(
        service,
        region_name=sign_in.region,
        endpoint_url=sign_in.endpoint_url or None,
        config=config,
    )
