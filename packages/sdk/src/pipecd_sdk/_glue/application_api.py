# SPDX-License-Identifier: Apache-2.0
"""What the services share that ask a plugin about an application, outside of a deployment."""

from collections.abc import Sequence

from pipecd_sdk._glue import messages
from pipecd_sdk._glue.entry import Setup
from pipecd_sdk._glue.execute import require_targets
from pipecd_sdk._glue.piped import ApplicationObjects, PipedClient, PipedTools
from pipecd_sdk.clock import Clock
from pipecd_sdk.context import DeployTarget
from pipecd_sdk.plugin import StagePlugin


class ApplicationApi:
    """The base of such a service."""

    def __init__(self, plugin: StagePlugin, setup: Setup, piped: PipedClient, clock: Clock) -> None:
        self._plugin = plugin
        self._setup = setup
        self._piped = piped
        self._clock = clock
        self._reader = messages.Reader(plugin, setup.name)
        self._tools = PipedTools(piped)

    def _require_targets(self, names: Sequence[str], application: str) -> list[DeployTarget]:
        """Returns the deploy targets of the application. Raises StatusError, see `execute`."""
        return require_targets(self._setup, names, whose="the application", application=application)

    def _open_objects(self, application_id: str) -> ApplicationObjects:
        """Returns the objects that the plugin shares between deployments of the application."""
        return ApplicationObjects(self._piped, application_id)
