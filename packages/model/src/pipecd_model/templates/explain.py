# SPDX-License-Identifier: Apache-2.0
"""The fault of a template, for its author: where, why, what to write instead."""

from __future__ import annotations

from pipecd_model.config.fault import ConfigFaultsError, Fault


class BadTemplateError(ConfigFaultsError):
    """A template cannot be rendered; says where and why."""

    def __init__(
        self, name: str, message: str, *, hint: str = "", line: int = 0, column: int = 0
    ) -> None:
        fault = Fault(file=name, line=line, column=column, message=message, hint=hint)
        super().__init__([fault])


def place(text: str, index: int) -> tuple[int, int]:
    """Returns line and column, from 1, of the character at an index."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)
