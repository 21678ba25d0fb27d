# SPDX-License-Identifier: Apache-2.0
"""Keys and passwords that are made here."""

from pipecd_controlplane.usecases.keys import new_api_key, new_password, new_piped_key


def test_secrets_are_made_of_much_chance() -> None:
    """Two thousand keys without one alike, and every letter in them."""
    for make in (new_piped_key, new_password, lambda: new_api_key("id")):
        made = {make() for _ in range(2000)}
        assert len(made) == 2000
        assert len(set("".join(made)) - {"."}) == 36
