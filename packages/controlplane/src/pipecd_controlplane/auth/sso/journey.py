# SPDX-License-Identifier: Apache-2.0
"""The encrypted cookie that a browser carries from the start of a sign-in to its end.

It holds the state that must come back, the nonce of the ID token and the verifier of PKCE. Nothing
is stored on the server: any replica with the same key can finish what another began.
"""

import base64
import hashlib
import hmac
import secrets
from typing import Final

import msgspec

from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.usecases.vault import Vault
from pipecd_model.errors import StateError, UnauthenticatedError

SECONDS: Final = 1800
PLACE: Final = "cookie/state"


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """One sign-in that has begun and not ended."""

    project_id: str
    state: str
    nonce: str
    verifier: str
    expires_at: int
    next_path: str = "/"
    """The page that the sign-in leads to."""

    @property
    def challenge(self) -> str:
        """Returns the PKCE challenge: the hash of the verifier, which is sent ahead of it."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Journeys:
    """Begins sign-ins, and decrypts and checks the cookie when the browser comes back."""

    def __init__(self, vault: Vault, now: Now) -> None:
        self._vault = vault
        self._now = now

    def begin(self, project_id: str, next_path: str = "/") -> Journey:
        return Journey(
            project_id=project_id,
            state=secrets.token_hex(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            expires_at=self._now() + SECONDS,
            next_path=next_path,
        )

    def cookie(self, journey: Journey) -> str:
        return self._vault.encrypt(msgspec.json.encode(journey).decode(), place=PLACE)

    def resume(self, cookie: str, state: str) -> Journey:
        """Returns the sign-in of a cookie.

        Raises UnauthenticatedError when it is not ours, has another state, or has expired.
        """
        refusal = UnauthenticatedError(
            "the sign-in was not begun in this browser, or too long ago", hint="begin again"
        )
        try:
            opened = self._vault.decrypt(cookie, place=PLACE)
            journey = msgspec.json.decode(opened.encode(), type=Journey)
        except (StateError, msgspec.DecodeError):
            raise refusal from None
        # Upstream's way for OIDC: the project stands behind the state.
        given = state.partition(":")[0]
        if not hmac.compare_digest(journey.state, given) or journey.expires_at <= self._now():
            raise refusal
        return journey
