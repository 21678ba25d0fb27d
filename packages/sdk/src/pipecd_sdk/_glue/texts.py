# SPDX-License-Identifier: Apache-2.0
"""Texts of plugins made fit for the wire."""


def clean(text: str) -> str:
    """Returns the text as valid UTF-8: file names may hold bytes that are none."""
    return text.encode("utf-8", "backslashreplace").decode()


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
