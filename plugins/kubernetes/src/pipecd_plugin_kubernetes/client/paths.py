# SPDX-License-Identifier: Apache-2.0
"""Where kinds and objects are on the server."""

from pipecd_plugin_kubernetes.client.errors import InvalidError
from pipecd_plugin_kubernetes.client.refusals import clean_message
from pipecd_plugin_kubernetes.client.requests import join_path
from pipecd_plugin_kubernetes.client.resources import ApiResource, Object, ObjectRef


def find_collection(resource: ApiResource, namespace: str) -> str:
    """Returns the path of all objects of a kind, in a namespace or (empty) in all."""
    check_segment("a namespace", namespace, may_be_empty=True)
    place = ("namespaces", namespace) if resource.namespaced and namespace else ()
    root = ("apis", resource.group) if resource.group else ("api",)
    return join_path(*root, resource.version, *place, resource.plural)


def find_object(ref: ObjectRef, subresource: str = "") -> str:
    """Returns the path of one object. Raises InvalidError for a name that can be none."""
    check_segment(f"the name of a {ref.resource.kind}", ref.name)
    if ref.resource.namespaced and not ref.namespace:
        raise InvalidError(f"{ref} is in no namespace")
    return find_collection(ref.resource, ref.namespace) + join_path(ref.name, subresource)


def check_segment(what: str, text: str, *, may_be_empty: bool = False) -> None:
    """Raises InvalidError for what would be another path: `..`, a slash, nothing."""
    if not text and may_be_empty:
        return
    if not text or text in {".", ".."} or "/" in text or "%" in text or not text.isprintable():
        raise InvalidError(f"not {what}: {clean_message(text, 300)!r}")


def read_identity(body: Object) -> tuple[str, str, str, str]:
    """Returns apiVersion, kind, namespace and name of a manifest. Raises InvalidError."""
    metadata = body.get("metadata")
    found = {
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "metadata.name": metadata.get("name") if isinstance(metadata, dict) else None,
    }
    for key, value in found.items():
        if not isinstance(value, str) or not value:
            known = " ".join(
                clean_message(each, 100) for each in found.values() if isinstance(each, str)
            )
            raise InvalidError(f"a manifest{f' ({known})' if known else ''} has no {key}")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    if not isinstance(namespace, (str, type(None))):
        raise InvalidError(
            f"the namespace of {found['kind']} {found['metadata.name']!r} is no text"
        )
    return (
        str(found["apiVersion"]),
        str(found["kind"]),
        namespace or "",
        str(found["metadata.name"]),
    )
