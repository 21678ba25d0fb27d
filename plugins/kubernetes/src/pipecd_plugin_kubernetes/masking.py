# SPDX-License-Identifier: Apache-2.0
"""Objects as they may be shown: values of Secrets masked, bookkeeping of the server left out. Pure.

An object has any shape: what is not shaped as a Secret's values are is masked as a whole.
"""

from collections.abc import Mapping
from typing import Any, Final

from pipecd_plugin_kubernetes.client import Object
from pipecd_plugin_kubernetes.livestate.records import LAST_APPLIED

MASK: Final = "***"
OWN_ANNOTATIONS: Final = "pipecd.dev/"
"""The beginning of annotations that we write ourselves, which hold no value of a Secret."""
_VALUES: Final = ("data", "stringData")
_KNOWN: Final = frozenset({"apiVersion", "kind", "metadata", "type", "immutable", *_VALUES})


def mask_object(body: Mapping[str, Any], *, is_secret: bool) -> Object:
    """Returns a copy of an object that may be shown.

    Of a Secret the names of its values are left, and of its annotations only our own: tools keep
    whole manifests there. `is_secret` is what the API says: a body may call itself anything.
    """
    shown = {key: value for key, value in body.items() if key != "metadata"}
    if "metadata" in body:
        shown["metadata"] = _mask_metadata(body["metadata"], is_secret=is_secret)
    if is_secret:
        for key in shown.keys() - {"metadata"}:
            if key in _VALUES or key not in _KNOWN:
                shown[key] = _mask_values(shown[key])
    order = ("apiVersion", "kind", "metadata")
    first = {key: shown[key] for key in order if key in shown}
    return first | {key: value for key, value in shown.items() if key not in order}


def _mask_metadata(metadata: Any, *, is_secret: bool) -> Any:
    if not isinstance(metadata, Mapping):
        return MASK if is_secret else metadata
    shown = {key: value for key, value in metadata.items() if key != "managedFields"}
    annotations = shown.get("annotations")
    if isinstance(annotations, Mapping):
        shown["annotations"] = {
            key: MASK if is_secret and not str(key).startswith(OWN_ANNOTATIONS) else value
            for key, value in annotations.items()
            if key != LAST_APPLIED
        }
    elif is_secret and annotations is not None:
        shown["annotations"] = MASK
    return shown


def _mask_values(values: Any) -> Any:
    if isinstance(values, Mapping):
        return dict.fromkeys(values, MASK)
    return None if values is None else MASK
