# SPDX-License-Identifier: Apache-2.0
"""Environments of child processes: always chosen, never simply a copy of our own."""

import os
from collections.abc import Mapping, Sequence
from typing import Final

from pipecd_runtime.arguments import BadArgumentError

_OURS: Final = "PIPECD_"
"""Variables that our programs pass to each other, tokens included: other programs get none."""

# Set by our wire package for its own process, and wrong for a program that forks on purpose.
_PRIVATE: Final = frozenset({"GRPC_ENABLE_FORK_SUPPORT"})


def operator_environment(*, also: Sequence[str] = ()) -> dict[str, str]:
    """Returns the environment that this process was started with, without PipeCD's own variables.

    For programs that are promised the operator's environment: plugins, scripts. `also` names
    variables of ours that this child needs; one that ends with `_` stands for all that begin so.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _PRIVATE and (not name.startswith(_OURS) or _is_named(name, also))
    }


def choose_environment(names: Sequence[str]) -> dict[str, str]:
    """Returns the variables with these names; one that ends with `_` stands for all that begin so.

    For programs whose needs are known.
    """
    return {name: value for name, value in os.environ.items() if _is_named(name, names)}


def check_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy. Raises BadArgumentError for what cannot be in an environment."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise BadArgumentError(f"{name[:100]!r} cannot be a variable of a program")
    return dict(env)


def _is_named(name: str, names: Sequence[str]) -> bool:
    return any(name == each or (each.endswith("_") and name.startswith(each)) for each in names)
