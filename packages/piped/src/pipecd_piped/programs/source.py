# SPDX-License-Identifier: Apache-2.0
"""The source of a program, which the other modules of `pipecd_piped.programs` work with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSource:
    """The name of a program, its address, and its expected checksum."""

    name: str
    url: str
    """A path, file://, http://, https://, oci://, package://name, or empty for a package."""
    sha256: str = ""
    """The expected checksum of the executable; empty to accept any content."""
    insecure: bool = False
    """Whether the registry is accessed without TLS."""
    kind: str = "plugin"
    """The word for such a program in messages."""

    @property
    def label(self) -> str:
        """Returns the program as error messages name it."""
        return f"{self.kind} {self.name!r}"
