# SPDX-License-Identifier: Apache-2.0
"""Tokens that every cluster of tests knows from its start."""

from pathlib import Path
from typing import Final

ADMIN_TOKEN: Final = "token-of-the-administrator"  # noqa: S105 - of clusters that live for a test
NOBODY_TOKEN: Final = "token-of-nobody"  # noqa: S105
"""Of somebody who is known and may do nothing, until a test gives a right to the user `nobody`."""


def write_tokens(path: Path) -> None:
    """Write the file that the API server reads at its start."""
    path.write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n{NOBODY_TOKEN},nobody,nobody\n')
    path.chmod(0o600)
