# SPDX-License-Identifier: Apache-2.0
"""Masks known secret values in what is shown: a net, beside the program's own masks. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

MASK: Final = "(secret)"
SHORTEST: Final = 6
"""Characters of a value that is masked: shorter ones stand everywhere."""
_SECRET_NAME: Final = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|KEY|PRIVATE|AUTH", re.IGNORECASE)


class Mask:
    """Replaces secret values."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        found: set[str] = set()
        for value in values:
            for line in (value, *value.splitlines()):
                if len(line.strip()) >= SHORTEST:
                    found |= {line, json.dumps(line)[1:-1]}
        longest_first = sorted(found, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if found else None

    def apply(self, text: str) -> str:
        """Returns the text without the values.

        Example:
            >>> Mask(["hush-hush"]).apply("token hush-hush")
            'token (secret)'
        """
        return self._pattern.sub(MASK, text) if self._pattern is not None else text


def find_secret_values(variables: Mapping[str, str]) -> list[str]:
    """Returns the values of variables whose names say that they are secret.

    Example:
        >>> find_secret_values({"AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "eu-west-1"})
        ['x']
    """
    return [value for name, value in variables.items() if _SECRET_NAME.search(name)]
