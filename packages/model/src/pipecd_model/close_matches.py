# SPDX-License-Identifier: Apache-2.0
"""What somebody may have meant by a name that is unknown."""

from collections.abc import Iterable


def find_close_matches(
    written: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6
) -> list[str]:
    """Returns the known names that are like a written one, the closest first.

    `cutoff` is how much of it must be alike, from 0 to 1.
    """
    # Here and not above: most processes never see a misspelled name.
    from difflib import get_close_matches  # noqa: PLC0415

    return get_close_matches(written, list(known), n=most, cutoff=cutoff)
