# SPDX-License-Identifier: Apache-2.0
"""The version of this command line."""


def format_version() -> str:
    """Returns `pipectl VERSION`, as its distribution says."""
    from importlib.metadata import version  # noqa: PLC0415 - slow to import, seldom needed

    return f"pipectl {version('pipecd-pipectl')}"
