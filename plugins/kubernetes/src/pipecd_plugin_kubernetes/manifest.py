# SPDX-License-Identifier: Apache-2.0
"""One object as git has it, and the key that finds it again in a cluster.

`parse_manifests` reads a text of a repository or of a rendering tool and refuses, with the place,
whatever could not be an object of the API: everything behind it may rely on the shape.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipecd_sdk import StageFailedError
from pipecd_sdk.kit import yaml

MOST_CHARACTERS: Final = 32 * 1024 * 1024
"""Of one text; a cluster itself refuses objects of more than one and a half million bytes."""
MOST_MANIFESTS: Final = 10_000
_DEEPEST_LIST: Final = 5

_API_VERSION: Final = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[a-z0-9]+")
_KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_NO_NAME: Final = re.compile(r"[/%\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""What cannot be in a name because it stands in the path of an address."""
_LONGEST_NAME: Final = 253
_LONGEST_NAMESPACE: Final = 63
_LARGEST_WHOLE: Final = 10**21
"""Below this a number without a fraction is written without a point, as other programs do."""

_WORKLOADS: Final = {
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("extensions", "Deployment"),
    ("extensions", "DaemonSet"),
    ("extensions", "ReplicaSet"),
    ("", "Pod"),
}


class ManifestError(StageFailedError):
    """A manifest is wrong. The message names the file, the document and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ResourceKey:
    """What an object is called: its API group, kind, namespace and name; the version is left out.

    Example:
        >>> str(ResourceKey("apps", "Deployment", "default", "web"))
        'apps:Deployment:default:web'
        >>> str(ResourceKey("apps", "Deployment", "default", "web").normalize())
        'apps:deployment::web'
    """

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.group}:{self.kind}:{self.namespace}:{self.name}"

    def normalize(self) -> "ResourceKey":
        """Returns the key for comparison: without case, the namespace `default` as none."""
        return ResourceKey(
            self.group.lower(),
            self.kind.lower(),
            "" if self.namespace == "default" else self.namespace,
            self.name,
        )


class Manifest:
    """One object as a plain tree of values.

    The tree may be changed by whoever made it or its copy; nobody changes one that others hold.

    Example:
        >>> web = Manifest({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}})
        >>> str(web.key), web.is_service()
        (':Service::web', True)
    """

    __slots__ = ("body", "origin")

    def __init__(self, body: dict[str, Any], *, origin: str = "") -> None:
        self.body = body
        self.origin = origin
        """Where it was read, for messages; it makes no difference otherwise."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manifest) and self.body == other.body

    __hash__ = None  # type: ignore[assignment]  # its body may change

    def __repr__(self) -> str:
        return f"<Manifest {self.key}>"

    @property
    def api_version(self) -> str:
        """Returns the group and version, e.g. `apps/v1`."""
        return _as_text(self.body.get("apiVersion"))

    @property
    def group(self) -> str:
        """Returns the API group, empty for the core."""
        group, slash, _ = self.api_version.rpartition("/")
        return group if slash else ""

    @property
    def version(self) -> str:
        """Returns the version within its API group."""
        return self.api_version.rpartition("/")[2]

    @property
    def kind(self) -> str:
        """Returns the kind, e.g. `Deployment`."""
        return _as_text(self.body.get("kind"))

    @property
    def metadata(self) -> dict[str, Any]:
        """Returns the metadata itself, made when there is none: a change to it is kept."""
        return open_map(self.body, "metadata")

    @property
    def name(self) -> str:
        """Returns the name."""
        return _as_text(self._read_metadata().get("name"))

    @property
    def namespace(self) -> str:
        """Returns the namespace that is written in it; empty when there is none."""
        return _as_text(self._read_metadata().get("namespace"))

    @property
    def key(self) -> ResourceKey:
        """Returns the key."""
        return ResourceKey(self.group, self.kind, self.namespace, self.name)

    @property
    def labels(self) -> Mapping[str, str]:
        """Returns the labels, to read."""
        return _as_texts(self._read_metadata().get("labels"))

    @property
    def annotations(self) -> Mapping[str, str]:
        """Returns the annotations, to read."""
        return _as_texts(self._read_metadata().get("annotations"))

    def _read_metadata(self) -> Mapping[str, Any]:
        found = self.body.get("metadata")
        return found if isinstance(found, dict) else {}

    def copy(self) -> "Manifest":
        """Returns another one with a tree of its own."""
        return Manifest(copy_tree(self.body), origin=self.origin)

    def describe(self) -> str:
        """Returns what people call it, e.g. `Deployment web in default`."""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.kind} {self.name}{where}"

    def is_workload(self) -> bool:
        """Returns whether it is of a built-in kind that runs pods until it is told otherwise."""
        return (self.group, self.kind) in _WORKLOADS

    def is_service(self) -> bool:
        """Returns whether it is a Service of the core."""
        return (self.group, self.kind) == ("", "Service")

    def is_config_map(self) -> bool:
        """Returns whether it is a ConfigMap."""
        return (self.group, self.kind) == ("", "ConfigMap")

    def is_secret(self) -> bool:
        """Returns whether it is a Secret: its values are never shown."""
        return (self.group, self.kind) == ("", "Secret")

    def is_deployment(self) -> bool:
        """Returns whether it is a Deployment."""
        return self.group in {"apps", "extensions"} and self.kind == "Deployment"

    def to_yaml(self) -> str:
        """Returns it as the text of one document."""
        return yaml.dump(self.body)


def open_map(parent: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Returns the map below these keys, made where there is none. Raises ManifestError.

    Example:
        >>> body = {"metadata": None}
        >>> open_map(body, "metadata", "labels")["a"] = "b"
        >>> body
        {'metadata': {'labels': {'a': 'b'}}}
    """
    found = parent
    for number, key in enumerate(keys):
        below = found.get(key)
        if below is None:
            below = found[key] = {}
        if not isinstance(below, dict):
            raise ManifestError(
                f"{'.'.join(keys[: number + 1])} must be a map, it is {name_type(below)}"
            )
        found = below
    return found


def find_map(parent: Any, *keys: str) -> dict[str, Any]:
    """Returns the map below these keys to read; an empty one when there is none.

    Example:
        >>> find_map({"spec": {"template": {"spec": 1}}}, "spec", "template", "spec")
        {}
    """
    for key in keys:
        parent = parent.get(key) if isinstance(parent, dict) else None
    return parent if isinstance(parent, dict) else {}


def name_type(value: Any) -> str:
    """Returns what people call a value of this type."""
    names = {
        dict: "a map",
        list: "a list",
        str: "a text",
        bool: "true or false",
        type(None): "null",
    }
    return names.get(type(value), "a number")


def parse_manifests(text: str, *, origin: str) -> list[Manifest]:
    """Returns the objects of a text, in their order; lists of objects are unfolded.

    `origin` names the file in messages. Raises ManifestError.

    Example:
        >>> text = "apiVersion: v1\\nkind: Service\\nmetadata: {name: web}\\n---\\n# nothing\\n"
        >>> parse_manifests(text, origin="svc.yaml")
        [<Manifest :Service::web>]
    """
    if len(text) > MOST_CHARACTERS:
        raise ManifestError(
            f"{origin}: longer than {MOST_CHARACTERS // 1024 // 1024} million characters",
            hint="split it",
        )
    try:
        documents = yaml.load_all(text)
    except yaml.YamlError as error:
        raise ManifestError(f"{origin}: {error}") from None
    found: list[Manifest] = []
    for number, document in enumerate(documents, start=1):
        where = origin if len(documents) == 1 else f"{origin}, document {number}"
        for body, place in _unfold(document, where, 0):
            found.append(check_manifest(body, place))
            if len(found) > MOST_MANIFESTS:
                raise ManifestError(f"{origin}: more than {MOST_MANIFESTS} objects")
    return found


def _unfold(document: Any, where: str, depth: int) -> Iterator[tuple[Any, str]]:
    """Yields the objects of a list of objects with their places; anything else as it is."""
    if not _is_list(document):
        yield document, where
        return
    if depth >= _DEEPEST_LIST:
        raise ManifestError(
            f"{where}: lists within lists, {_DEEPEST_LIST} deep", hint="unfold them"
        )
    kind = document["kind"].removesuffix("List")
    for number, item in enumerate(document["items"], start=1):
        # The items of e.g. a ConfigMapList may leave out what its name says.
        known = {"apiVersion": document.get("apiVersion"), "kind": kind} if kind else {}
        whole = known | item if isinstance(item, dict) else item
        yield from _unfold(whole, f"{where}, item {number}", depth + 1)


def _is_list(document: Any) -> bool:
    if not isinstance(document, dict) or not isinstance(document.get("items"), list):
        return False
    kind, metadata = document.get("kind"), document.get("metadata")
    named = isinstance(metadata, dict) and "name" in metadata
    return isinstance(kind, str) and kind.endswith("List") and not named


def check_manifest(body: Any, where: str) -> Manifest:
    """Returns a manifest with this body, whose shape is that of an object. Raises ManifestError."""
    if not isinstance(body, dict):
        raise ManifestError(
            f"{where}: a manifest must be a map, this is {name_type(body)}",
            hint="it begins with apiVersion, kind and metadata",
        )
    _check_text(body, "apiVersion", _API_VERSION, where, "e.g. v1 or apps/v1")
    _check_text(body, "kind", _KIND, where, "e.g. Deployment")
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        found = "is missing" if metadata is None else f"must be a map, it is {name_type(metadata)}"
        raise ManifestError(f"{where}: metadata {found}", hint="it holds at least the name")
    what = f"{where} ({body['kind']})"
    _check_name(metadata, what)
    if metadata.get("namespace") is not None:
        _check_text(
            metadata,
            "namespace",
            _NAMESPACE,
            what,
            "lower-case letters, digits and '-'",
            longest=_LONGEST_NAMESPACE,
        )
    for key in ("labels", "annotations"):
        _check_texts(metadata.get(key), key, f"{what} {metadata['name']!r}")
    return Manifest(copy_tree(body), origin=where)


def _check_text(
    parent: dict[str, Any],
    key: str,
    grammar: re.Pattern[str],
    where: str,
    hint: str,
    *,
    longest: int = _LONGEST_NAME,
) -> None:
    value = parent.get(key)
    if value is None or value == "":
        raise ManifestError(f"{where}: {key} is missing", hint=hint)
    if not isinstance(value, str):
        raise ManifestError(
            f"{where}: {key} must be a text, it is {name_type(value)}", hint="put it in quotes"
        )
    if len(value) > longest or not grammar.fullmatch(value):
        raise ManifestError(f"{where}: {key} cannot be {value[:100]!r}", hint=hint)


def _check_name(metadata: dict[str, Any], where: str) -> None:
    name = metadata.get("name")
    if not name and metadata.get("generateName"):
        raise ManifestError(
            f"{where}: has generateName and no name",
            hint="what is kept in git needs a name, or every deployment would make another one",
        )
    if name is None or name == "":
        raise ManifestError(f"{where}: metadata.name is missing")
    if not isinstance(name, str):
        raise ManifestError(
            f"{where}: metadata.name must be a text, it is {name_type(name)}",
            hint="put it in quotes",
        )
    if len(name) > _LONGEST_NAME or _NO_NAME.search(name) or name in {".", ".."}:
        raise ManifestError(f"{where}: metadata.name cannot be {name[:100]!r}")


def _check_texts(value: Any, key: str, where: str) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise ManifestError(f"{where}: metadata.{key} must be a map, it is {name_type(value)}")
    for name, text in value.items():
        if text is not None and not isinstance(text, str):
            raise ManifestError(
                f"{where}: metadata.{key} {name!r} must be a text, it is {name_type(text)}",
                hint="put the value in quotes",
            )


def copy_tree(tree: Any) -> Any:
    """Returns a tree of plain values in which no map or list stands in two places.

    An alias in YAML makes one map of e.g. labels and selector: a label that is added to one would
    be in both. Numbers without a fraction become integers, as YAML becomes JSON elsewhere; the API
    would refuse `replicas: 1e1` otherwise.

    Example:
        >>> copy_tree({"replicas": 3.0, "weight": 0.5})
        {'replicas': 3, 'weight': 0.5}
    """
    if isinstance(tree, dict):
        return {key: copy_tree(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [copy_tree(value) for value in tree]
    if isinstance(tree, float) and tree.is_integer() and abs(tree) < _LARGEST_WHOLE:
        return int(tree)
    return tree


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _as_texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {name: _as_text(text) for name, text in value.items()}
