# SPDX-License-Identifier: Apache-2.0
"""Which hosts an address may lead to that an application names: nothing private by mistake.

Connect to the addresses that `check` returns, not to the name: it may mean another host by then.

Example:
    >>> parse_address("https://user:secret@Example.com/a").host
    'example.com'
"""

from pipecd_runtime.hosts import (
    AllowedHosts,
    FetchAddress,
    IpAddress,
    hide_password,
    is_public,
    parse_address,
)
from pipecd_sdk.results import StageFailedError

__all__ = [
    "FetchAddress",
    "HostNotAllowedError",
    "Hosts",
    "IpAddress",
    "hide_password",
    "is_public",
    "parse_address",
]


class HostNotAllowedError(StageFailedError):
    """An address leads to a host that the piped file does not allow.

    Example:
        try:
            await hosts.check("http://169.254.169.254/latest", "the check")
        except HostNotAllowedError as error:
            ctx.log.error("%s", error.reason())
    """


class Hosts(AllowedHosts):
    """The hosts that are allowed: names, `*.example.com`, networks such as `10.0.0.0/8`.

    With `public=True` every host with public addresses is, and only the others must be named.
    `check` and `check_host` raise HostNotAllowedError.

    Example:
        addresses = await Hosts(config.allowed_hosts, public=True).check(url, "the check")
    """

    def _refuse(self, message: str, *, hint: str) -> StageFailedError:
        return HostNotAllowedError(message, hint=hint)
