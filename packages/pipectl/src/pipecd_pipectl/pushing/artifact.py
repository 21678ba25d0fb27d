# SPDX-License-Identifier: Apache-2.0
"""The OCI documents that make files of several platforms one artifact, in upstream's form.

A manifest per platform, whose one layer is the file, and an index over them. The same files make
the same bytes, and so the same digest.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipecd_model.errors import ConfigError
from pipecd_model.oci import (
    ARTIFACT,
    EMPTY,
    INDEX,
    LAYER,
    MANIFEST,
    Descriptor,
    OciDocument,
    Platform,
)

NO_CONFIG: Final = b"{}"
"""An artifact has no configuration, and a manifest must name one."""

_TITLE: Final = "org.opencontainers.image.title"
_PROGRAMS: Final = (b"\x7fELF", b"#!")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformFile:
    """The executable of one platform."""

    platform: Platform
    path: Path


def parse_files(texts: Iterable[str]) -> tuple[PlatformFile, ...]:
    """Returns the files in texts such as `os/arch=path,…`. Raises ConfigError."""
    files: dict[Platform, PlatformFile] = {}
    for text in (part for each in texts for part in each.split(",") if part):
        target, _, path = text.partition("=")
        system, _, architecture = target.partition("/")
        platform = Platform(os=system, architecture=architecture)
        if not (system and architecture and path) or "/" in architecture:
            raise ConfigError(
                f"not a file for a platform: {text!r}", hint="write os/arch=path, in Go's words"
            )
        if platform in files:
            raise ConfigError(f"two files for {platform}", hint="a platform has one")
        files[platform] = PlatformFile(platform=platform, path=Path(path))
        _check(files[platform])
    return tuple(files.values())


def layer_of(file: PlatformFile) -> Descriptor:
    """Returns the descriptor of the layer that holds the file: its digest, size and name."""
    with file.path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        size = content.tell()
    return Descriptor(
        media_type=LAYER,
        digest=f"sha256:{digest}",
        size=size,
        annotations={_TITLE: file.path.name},
    )


def manifest_of(layer: Descriptor) -> OciDocument:
    """Returns the manifest of one platform."""
    return OciDocument(
        schema_version=2,
        media_type=MANIFEST,
        artifact_type=ARTIFACT,
        config=describe(EMPTY, NO_CONFIG),
        layers=(layer,),
    )


def index_of(manifests: Sequence[tuple[Platform, OciDocument]]) -> OciDocument:
    """Returns the index over the manifests of all platforms."""
    described = (
        describe(MANIFEST, manifest.encode(), platform) for platform, manifest in manifests
    )
    return OciDocument(
        schema_version=2, media_type=INDEX, artifact_type=ARTIFACT, manifests=tuple(described)
    )


def describe(media_type: str, content: bytes, platform: Platform | None = None) -> Descriptor:
    """Returns the descriptor of content that is in memory."""
    return Descriptor(
        media_type=media_type,
        digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
        size=len(content),
        platform=platform,
    )


def _check(file: PlatformFile) -> None:
    try:
        with file.path.open("rb") as content:
            begins = content.read(4)
    except OSError as error:
        raise ConfigError(f"cannot read {str(file.path)!r}: {error.strerror}") from None
    if file.platform.os == "linux" and not begins.startswith(_PROGRAMS):
        raise ConfigError(
            f"{str(file.path)!r} is not a program",
            hint="a plugin is one executable file, or a script that begins with #!",
        )
