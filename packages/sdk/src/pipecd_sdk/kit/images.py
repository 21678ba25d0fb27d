# SPDX-License-Identifier: Apache-2.0
"""Container images: their names and versions.

Example:
    >>> parse_image("registry:5000/web:v1").version
    'v1'
"""

from dataclasses import dataclass

__all__ = ["Image", "parse_image"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A container image as people name it."""

    text: str
    name: str
    """The last part of its path."""
    version: str
    """The tag; the digest where there is no tag; `latest` where there is neither."""


def parse_image(text: str) -> Image:
    """Returns the parts of an image's name.

    Example:
        >>> parse_image("registry:5000/team/web:v1@sha256:ab")
        Image(text='registry:5000/team/web:v1@sha256:ab', name='web', version='v1')
        >>> parse_image("registry:5000/web").version
        'latest'
        >>> parse_image("web@sha256:ab").version
        'sha256:ab'
    """
    path, _, digest = text.partition("@")
    name, _, tag = path.rpartition("/")[2].partition(":")
    return Image(text=text, name=name, version=tag or digest or "latest")
