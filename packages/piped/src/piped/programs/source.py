# SPDX-License-Identifier: Apache-2.0
"""Where a program comes from: the value that everything in `piped.programs` is given."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSource:
    """The name of a program, its address, and what its content must be."""

    name: str
    url: str
    """A path, file://, http://, https://, oci://, package://name, or empty for a package."""
    sha256: str = ""
    """The checksum of the executable; empty when any content will do."""
    insecure: bool = False
    """Whether the registry is asked without TLS."""
    kind: str = "plugin"
    """What people call such a program."""

    @property
    def label(self) -> str:
        """Returns the program as error messages name it."""
        return f"{self.kind} {self.name!r}"
