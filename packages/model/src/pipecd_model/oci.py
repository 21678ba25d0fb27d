# SPDX-License-Identifier: Apache-2.0
"""Plugins in an OCI registry: how they are named there, and the documents that describe them.

piped reads these and `pipectl plugin push` writes them; both speak to the registry themselves.
An index lists one manifest per platform, a manifest the layers, which are the executable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

import msgspec

from pipecd_model.errors import ConfigError

SCHEME: Final = "oci://"
LAYER: Final = "application/vnd.pipecd.piped.plugin"
ARTIFACT: Final = "application/vnd.pipecd.piped.plugin+type"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
EMPTY: Final = "application/vnd.oci.empty.v1+json"
READABLE: Final = (
    INDEX,
    MANIFEST,
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""The kinds of documents that are asked for; registries keep the docker forms of both too."""

LARGEST_DOCUMENT: Final = 4 * 1024 * 1024
"""What every registry takes, so no document needs more."""

_DIGEST: Final = r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}"
_REFERENCE: Final = re.compile(
    r"(?P<host>(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?)"
    r"/(?P<repository>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    rf"(?:@(?P<digest>{_DIGEST}))?"
)
_PARAMETER: Final = re.compile(r'([A-Za-z_]+)=(?:"([^"]*)"|([^\s,"]+))')


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Where an artifact is: `oci://host/repository[:tag][@digest]`."""

    host: str
    repository: str
    tag: str = "latest"
    digest: str = ""

    @property
    def version(self) -> str:
        """What the registry is asked for: the digest says more than the tag."""
        return self.digest or self.tag

    @property
    def server(self) -> str:
        """Returns the host that serves the registry's API; for docker.io it is another name."""
        return "registry-1.docker.io" if self.host == "docker.io" else self.host

    @property
    def is_loopback(self) -> bool:
        """Returns whether the registry is on this machine."""
        name = re.sub(r":[0-9]+$", "", self.host).strip("[]").lower()
        try:
            return ip_address(name).is_loopback
        except ValueError:
            return name == "localhost"

    def __str__(self) -> str:
        digest = f"@{self.digest}" if self.digest else ""
        return f"{SCHEME}{self.host}/{self.repository}:{self.tag}{digest}"


def parse_reference(url: str) -> Reference:
    """Read an `oci://` address. Raises ConfigError."""
    found = _REFERENCE.fullmatch(url.removeprefix(SCHEME)) if url.startswith(SCHEME) else None
    if found is None:
        raise ConfigError(
            f"not the address of an artifact: {url!r}",
            hint="write oci://host/repository[:tag][@sha256:…], the repository in small letters",
        )
    return Reference(**{name: text for name, text in found.groupdict().items() if text})


class Platform(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an executable runs on, in Go's words."""

    os: str = ""
    architecture: str = ""

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A reference to content by its digest and size."""

    media_type: str
    digest: str
    size: int
    platform: Platform | None = None
    artifact_type: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class OciDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A manifest, which has layers, or an index, which has manifests."""

    schema_version: int
    media_type: str = ""
    artifact_type: str = ""
    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] = ()
    manifests: tuple[Descriptor, ...] = ()
    annotations: dict[str, str] = msgspec.field(default_factory=dict)

    def encode(self) -> bytes:
        """Returns the document as JSON; the digest of these bytes is its name."""
        return msgspec.json.encode(self)


def parse_document(content: bytes) -> OciDocument:
    """Read a manifest or an index. Raises ConfigError."""
    try:
        document = msgspec.json.decode(content, type=OciDocument)
    except msgspec.DecodeError as error:
        raise ConfigError(f"not a manifest: {error}") from None
    if document.layers and document.manifests:
        # Two readers could take it for two different things.
        raise ConfigError("neither a manifest nor an index: it has layers and manifests")
    for each in (*document.layers, *document.manifests):
        if not re.fullmatch(_DIGEST, each.digest) or each.size < 0:
            raise ConfigError(f"not a digest: {each.digest!r} of {each.size} bytes")
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """How a registry wants its caller to authenticate, from the header `WWW-Authenticate`."""

    scheme: str
    realm: str = ""
    """Where tokens are given out."""
    service: str = ""
    scope: str = ""


def parse_challenge(header: str) -> Challenge:
    """Parses the header; unknown parameters are ignored."""
    scheme, _, rest = header.strip().partition(" ")
    given = {name.lower(): quoted or bare for name, quoted, bare in _PARAMETER.findall(rest)}
    known = {name: given[name] for name in ("realm", "service", "scope") if name in given}
    return Challenge(scheme=scheme.lower(), **known)
