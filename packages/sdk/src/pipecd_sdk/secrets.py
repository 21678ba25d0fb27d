# SPDX-License-Identifier: Apache-2.0
"""The secrets of an application, for the stage that names them: `{{ .encryptedSecrets.name }}`.

They are closed in the application file, and piped opens one for a plugin only while a stage of the
same deployment runs in it. What is opened shows as it was written: only `text` holds the value.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from pipecd_model.errors import ConfigError
from pipecd_model.secrets.placeholder import Opened, names, open_command, open_variable
from pipecd_sdk.results import StageFailedError

Open = Callable[[str], Awaitable[str]]

UNOPENED: Final = "this agent opens no secrets for stages"
UNOPENED_HINT: Final = (
    "put it into a file with spec.encryption.decryptionTargets, and read that file in the stage"
)


class Secrets:
    """Opens the secrets that a stage names.

    Every method raises StageFailedError when a secret cannot be opened: the stage fails.

    Example:
        token = await ctx.secrets.expand_variable(config.env["TOKEN"])
        ctx.log.info("TOKEN is %s", token)  # shows the placeholder
        environment["TOKEN"] = token.text
    """

    def __init__(self, open_one: Open) -> None:
        """`open_one` gives the value of a name, or raises StageFailedError."""
        self._open_one = open_one

    async def open(self, name: str) -> str:
        """Returns the value of a secret."""
        return await self._open_one(name)

    async def expand_command(self, text: str) -> Opened:
        """Returns a command with the values of the secrets it names.

        Raises StageFailedError for a value that a shell would read as more than a word.
        """
        return await self._put(text, open_command)

    async def expand_variable(self, text: str) -> Opened:
        """Returns the value of an environment variable with the values of the secrets it names."""
        return await self._put(text, open_variable)

    async def _put(self, text: str, put: Callable[[str, Mapping[str, str]], Opened]) -> Opened:
        values = {name: await self._open_one(name) for name in names(text)}
        try:
            return put(text, values)
        except ConfigError as error:
            raise StageFailedError(str(error), hint=error.hint) from None


async def refuse(name: str) -> str:
    """Raises StageFailedError: this agent opens no secrets for plugins."""
    raise StageFailedError(f"the secret {name!r} cannot be opened: {UNOPENED}", hint=UNOPENED_HINT)
