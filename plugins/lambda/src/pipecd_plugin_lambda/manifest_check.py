# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the description of a function: all faults at once, before AWS is asked. Pure.

Which fields there are, and their types, is judged where they are sent: the API's own description
knows them.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

_ARCHITECTURES: Final = frozenset({"x86_64", "arm64"})
_NAME: Final = re.compile(
    r"(arn:[a-z0-9-]+:lambda:[a-z0-9-]+:\d{12}:function:|\d{12}:function:)?[A-Za-z0-9_-]{1,64}"
)
OUR_TAGS: Final = "pipecd-dev-"


def find_faults(spec: Any) -> list[str]:
    """Returns everything that is wrong, each with the name of its field."""
    if not isinstance(spec, Mapping):
        return ["spec must be an object"]
    given = {str(key).lower(): value for key, value in spec.items()}
    return [
        *_check_identity(given),
        *_check_code(given),
        *_check_numbers(given),
        *_check_shapes(given),
    ]


def _check_identity(given: Mapping[str, Any]) -> Iterator[str]:
    name = given.get("name")
    if not name:
        yield "spec.name must be given"
    elif not isinstance(name, str) or not _NAME.fullmatch(name):
        yield f"spec.name is not the name of a function: {name!r}"
    if not given.get("role"):
        yield "spec.role must be given"


def _check_code(given: Mapping[str, Any]) -> Iterator[str]:
    if given.get("image"):
        return
    for key in ("handler", "runtime"):
        if not given.get(key):
            yield f"spec.{key} must be given unless the function is an image"
    if given.get("s3bucket"):
        if not given.get("s3key"):
            yield "spec.s3Key must be given with s3Bucket"
        return
    source = given.get("source")
    if not source:
        yield "spec has no code: give image, s3Bucket with s3Key, or source"
        return
    if not isinstance(source, Mapping):
        yield "spec.source must be an object"
        return
    inner = {str(key).lower(): value for key, value in source.items()}
    for key in ("git", "ref"):
        if not inner.get(key) or not isinstance(inner[key], str):
            yield f"spec.source.{key} must be given, as a text"
    path = PurePosixPath(str(inner.get("path") or "."))
    if path.is_absolute() or ".." in path.parts:
        yield f"spec.source.path leads out of the repository: {str(path)!r}"


def _check_numbers(given: Mapping[str, Any]) -> Iterator[str]:
    storage = given.get("ephemeralstorage")
    size = None
    if isinstance(storage, Mapping):
        size = next((value for key, value in storage.items() if str(key).lower() == "size"), None)
    for name, value, least, most in (
        ("memory", given.get("memory"), 1, None),
        ("timeout", given.get("timeout"), 1, 900),
        ("ephemeralStorage.size", size, 512, 10_240),
        ("provisionedConcurrency", given.get("provisionedconcurrency"), 0, None),
        ("reservedConcurrency", given.get("reservedconcurrency"), 0, None),
    ):
        if value is None:
            continue
        number = _read_number(value)
        if number is None or number < least or (most is not None and number > most):
            limits = f"{least} to {most}" if most is not None else f"{least} or more"
            yield f"spec.{name} must be a number, {limits}: {value!r}"


def _read_number(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _check_shapes(given: Mapping[str, Any]) -> Iterator[str]:
    for key in ("tags", "environments", "vpcconfig", "functionurl", "ephemeralstorage"):
        if given.get(key) is not None and not isinstance(given[key], Mapping):
            yield f"spec.{key} must be an object"
    layers = given.get("layers")
    if layers is not None and not isinstance(layers, list):
        yield "spec.layers must be a list"
    architectures = given.get("architectures")
    if architectures is not None and not isinstance(architectures, list):
        yield "spec.architectures must be a list"
    for each in architectures if isinstance(architectures, list) else ():
        name = each.get("name") if isinstance(each, Mapping) else each
        if name not in _ARCHITECTURES:
            yield f"spec.architectures has {name!r}, which is neither x86_64 nor arm64"
    tags = given.get("tags")
    for key in tags if isinstance(tags, Mapping) else ():
        if str(key).startswith(OUR_TAGS):
            yield f"spec.tags has {key!r}, which is PipeCD's own"
