# SPDX-License-Identifier: Apache-2.0
"""Functions for paths as texts; no file is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipecd_model.templates.functions.signature import Function, declare


def clean(path: str) -> str:
    """Return the shortest path that means the same."""
    rooted = path.startswith("/")
    parts: list[str] = []
    for part in path.split("/"):
        if part in {"", "."}:
            continue
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".." or not rooted:
            parts.append(part)
    return ("/" if rooted else "") + "/".join(parts) or "."


def _base(path: str) -> str:
    if not path:
        return "."
    return path.rstrip("/").rpartition("/")[2] or "/"


def _dir(path: str) -> str:
    return clean(path[: path.rfind("/") + 1])


def _ext(path: str) -> str:
    name = path.rpartition("/")[2]
    return name[name.rfind(".") :] if "." in name else ""


def _is_absolute(path: str) -> bool:
    return path.startswith("/")


PATHS: Final[Mapping[str, Function]] = {
    **dict.fromkeys(("base", "osBase"), declare("s", _base)),
    **dict.fromkeys(("clean", "osClean"), declare("s", clean)),
    **dict.fromkeys(("dir", "osDir"), declare("s", _dir)),
    **dict.fromkeys(("ext", "osExt"), declare("s", _ext)),
    **dict.fromkeys(("isAbs", "osIsAbs"), declare("s", _is_absolute)),
}
