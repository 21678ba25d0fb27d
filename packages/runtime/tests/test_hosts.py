# SPDX-License-Identifier: Apache-2.0
"""Addresses as they may be shown."""

import pytest

from pipecd_runtime.hosts import hide_password


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://me:s3cret@example.com/a", "https://…@example.com/a"),
        ("https://me:s3cret@1@example.com/a", "https://…@example.com/a"),
        (f"https://me:{'s3cret' * 50}@example.com/a", "https://…@example.com/a"),
        ("https://example.com/@scope/a?b=c@d", "https://example.com/@scope/a?b=c@d"),
        ("ssh://git@example.com:22/a", "ssh://…@example.com:22/a"),
    ],
    ids=["plain", "with an at sign", "long", "none", "ssh"],
)
def test_a_password_is_hidden_whole(given: str, shown: str) -> None:
    assert hide_password(given) == shown


def test_an_address_is_shown_with_200_characters_at_most() -> None:
    assert len(hide_password("https://me:s3cret@example.com/" + "a" * 1_000)) == 200
