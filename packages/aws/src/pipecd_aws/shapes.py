# SPDX-License-Identifier: Apache-2.0
"""Brings a definition that a person wrote into the shape that an operation of AWS takes. Pure.

Which fields there are is botocore's knowledge of the API: every field passes through, also those
that AWS adds later. Names may be written in any case, numbers as texts and texts as numbers.
"""

from collections.abc import Mapping
from typing import Any, Final

MOST_DEPTH: Final = 40


class UnfitValueError(Exception):
    """A field has another type than the API wants; the message names the field, never a value."""


def fit(value: Mapping[str, Any], shape: Any) -> tuple[dict[str, Any], list[str]]:
    """Returns the value in the shape of an operation, and the paths of fields that it has not.

    `shape` is botocore's, from `AwsAccount.read_input_shape`. Raises UnfitValueError.
    """
    unknown: list[str] = []
    return _fit(value, shape, "", unknown, 0), unknown


def _fit(value: Any, shape: Any, path: str, unknown: list[str], depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise UnfitValueError(f"{path}: nested too deep")
    match shape.type_name:
        case "structure":
            return _fit_structure(value, shape, path, unknown, depth)
        case "list":
            if not isinstance(value, list):
                raise UnfitValueError(f"{path}: a list belongs here")
            return [
                _fit(item, shape.member, f"{path}[{index}]", unknown, depth + 1)
                for index, item in enumerate(value)
            ]
        case "map":
            if not isinstance(value, Mapping):
                raise UnfitValueError(f"{path}: an object belongs here")
            return {
                str(key): _fit(item, shape.value, f"{path}.{key}", unknown, depth + 1)
                for key, item in value.items()
            }
        case _:
            return _fit_scalar(value, shape.type_name, path)


def _fit_structure(
    value: Any, shape: Any, path: str, unknown: list[str], depth: int
) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UnfitValueError(f"{path or 'the top'}: an object belongs here")
    if getattr(shape, "is_document_type", False):
        return dict(value)
    names = {name.lower(): name for name in shape.members}
    fitted: dict[str, Any] = {}
    for key, item in value.items():
        name = names.get(str(key).lower())
        here = f"{path}.{key}" if path else str(key)
        if name is None:
            unknown.append(here)
        elif item is not None:  # nothing given, as if the key were not there
            fitted[name] = _fit(item, shape.members[name], here, unknown, depth + 1)
    return fitted


def _fit_scalar(value: Any, kind: str, path: str) -> Any:
    match kind:
        case "string":
            return _fit_text(value, path)
        case "integer" | "long":
            return _fit_number(value, int, path)
        case "float" | "double":
            return _fit_number(value, float, path)
        case "boolean":
            return _fit_truth(value, path)
        case _:  # timestamps and blobs: botocore reads them itself
            return value


def _fit_text(value: Any, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise UnfitValueError(f"{path}: a text belongs here")


def _fit_number(value: Any, kind: type[int] | type[float], path: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnfitValueError(f"{path}: a number belongs here")
    try:
        number = float(value)
        return int(value) if kind is int and number == int(number) else kind(value)
    except (ValueError, OverflowError):
        raise UnfitValueError(f"{path}: a number belongs here") from None


def _fit_truth(value: Any, path: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise UnfitValueError(f"{path}: true or false belongs here")
