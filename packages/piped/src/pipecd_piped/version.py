# SPDX-License-Identifier: Apache-2.0
"""The version of this agent."""


def find_version() -> str:
    """Returns the version of the installed distribution."""
    from importlib.metadata import version  # noqa: PLC0415 - slow to import, seldom needed

    return version("pipecd-piped")
