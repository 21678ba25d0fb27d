# SPDX-License-Identifier: Apache-2.0
"""The API of each deploy target: one client each, made when it is first needed, and kept."""

from typing import TYPE_CHECKING, Final

from pipecd_google.api import CallPolicy, GoogleApi, make_client
from pipecd_google.sign_in import GoogleSignIn
from pipecd_plugin_cloudrun.config import CloudRunTarget
from pipecd_plugin_cloudrun.provider.cloud_run import CloudRun
from pipecd_sdk import DeployTarget

if TYPE_CHECKING:
    import httpx2

RIGHTS_HINT: Final = (
    "the account needs roles/run.developer, and roles/iam.serviceAccountUser on the account"
    " that the service runs as"
)


class Clouds:
    """APIs by the names of deploy targets."""

    def __init__(self, policy: CallPolicy | None = None) -> None:
        self._policy = policy or CallPolicy()
        self._made: dict[str, CloudRun] = {}
        self._client: httpx2.AsyncClient | None = None

    def get(self, target: DeployTarget) -> CloudRun:
        """Returns the API of a deploy target. Nobody is asked anything yet."""
        if target.name not in self._made:
            config: CloudRunTarget = target.config
            if self._client is None:
                self._client = make_client()
            address = config.endpoint or f"https://{config.region}-run.googleapis.com"
            api = GoogleApi(
                address=address.rstrip("/"),
                sign_in=GoogleSignIn(config.credentials_file),
                client=self._client,
                policy=self._policy,
                rights_hint=RIGHTS_HINT,
            )
            self._made[target.name] = CloudRun(
                api=api, project=config.project, region=config.region
            )
        return self._made[target.name]

    async def close(self) -> None:
        """Closes all connections."""
        client, self._client = self._client, None
        self._made.clear()
        if client is not None:
            await client.aclose()
