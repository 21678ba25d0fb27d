# SPDX-License-Identifier: Apache-2.0
"""The profile: what the kit must know of a plugin, so that its stages can be run for real."""

import json
from pathlib import Path
from typing import Any

import msgspec


class ProfileError(ValueError):
    """A profile cannot be read."""


class StageProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How one stage of the plugin is tried."""

    name: str
    with_: dict[str, Any] | None = msgspec.field(name="with", default=None)
    """Options with which it ends by itself within seconds; none at all unless `long` is given."""
    endless: bool = False
    """It never ends by itself, whatever its options: it is only cancelled."""
    results: tuple[str, ...] = ("SUCCESS", "FAILURE", "SKIPPED", "EXITED")
    """How it may end then."""
    long: dict[str, Any] | None = None
    """Options with which it runs until it is cancelled."""
    wrong: dict[str, Any] | None = None
    """Options that must be refused."""

    @property
    def ends(self) -> bool:
        """Returns whether it is known how the stage ends by itself."""
        return not self.endless and (self.with_ is not None or self.long is None)

    @property
    def options(self) -> dict[str, Any]:
        """Returns options that the stage accepts, whether it ends with them or not."""
        return self.with_ if self.with_ is not None else self.long or {}


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What is known of a plugin. `$TMP` in any text is a fresh folder."""

    name: str
    config: dict[str, Any] = {}
    deploy_targets: tuple[dict[str, Any], ...] = ()
    application: dict[str, Any] = {}
    """The plugin's part of the application file."""
    files: dict[str, str] = {}
    """The application's folder: path to content."""
    flags: tuple[str, ...] = ()
    """What else it is started with, e.g. a short grace period."""
    stages: tuple[StageProfile, ...] = ()

    @property
    def targets(self) -> list[str]:
        """Returns the names of the deploy targets."""
        return [str(target["name"]) for target in self.deploy_targets]

    @property
    def entry(self) -> dict[str, Any]:
        """Returns the plugin's entry in the piped file, without name and source."""
        entry: dict[str, Any] = {}
        if self.config:
            entry["config"] = self.config
        if self.deploy_targets:
            entry["deployTargets"] = list(self.deploy_targets)
        return entry

    def rename(self, name: str) -> "Profile":
        """Returns the same plugin under another name in the piped file."""
        return msgspec.structs.replace(self, name=name)

    def fill_folder(self, folder: Path) -> "Profile":
        """Returns the profile with `$TMP` replaced by the folder."""
        text = json.dumps(msgspec.to_builtins(self)).replace("$TMP", str(folder))
        return msgspec.json.decode(text, type=Profile)

    def write_files(self, folder: Path) -> None:
        """Writes the application's files into a folder."""
        for name, content in self.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)


def load_profile(file: Path) -> Profile:
    """Reads a profile file. Raises ProfileError."""
    try:
        return msgspec.yaml.decode(file.read_bytes(), type=Profile, strict=True)
    except OSError as error:
        raise ProfileError(f"cannot read {str(file)!r}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ProfileError(f"{file}: {error}") from None
