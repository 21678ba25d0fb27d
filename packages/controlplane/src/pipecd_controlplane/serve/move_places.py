# SPDX-License-Identifier: Apache-2.0
"""From where to where `pipecd move` moves, as its flags and the configuration files say."""

from dataclasses import dataclass
from pathlib import Path

import click

from pipecd_controlplane.serve.config import FromFile
from pipecd_controlplane.serve.config import read as read_config
from pipecd_controlplane.store.blobs.config import FOLDER_NAME, BlobConfig, BlobFolder
from pipecd_controlplane.store.open import DatabaseConfig, SqliteFolder
from pipecd_model.errors import StateError


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFlags:
    """What was given on the command line."""

    data_dir: Path | None
    from_config: Path | None
    to_config: Path | None
    to_data_dir: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlaces:
    """Where a server keeps everything."""

    database: DatabaseConfig
    blobs: BlobConfig | None
    """None when they are in its data folder, and nobody has said which that is."""
    data_dir: Path | None
    """The folder with its keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlaces:
    """Where the server kept everything until now, and where it will."""

    old: ServerPlaces
    new: ServerPlaces
    to_config: Path | None

    @property
    def has_other_database(self) -> bool:
        return self.old.database != self.new.database

    @property
    def has_other_blobs(self) -> bool:
        """Returns whether the settings differ; they may lead to one store all the same."""
        return self.old.blobs != self.new.blobs


def find_source(flags: MoveFlags) -> ServerPlaces:
    """Returns where the server kept everything until now. Raises ConfigError, UsageError."""
    told = read_config(flags.from_config)
    return _find(told, flags.data_dir or told.data_dir, "--data-dir")


def find_places(flags: MoveFlags) -> MovePlaces:
    """Returns both sides. Raises ConfigError, UsageError, and StateError when they are the same."""
    if flags.to_config is None and flags.to_data_dir is None:
        raise click.UsageError("--to-config is missing: where shall everything go?")
    told, wanted = read_config(flags.from_config), read_config(flags.to_config)
    old = _find(told, flags.data_dir or told.data_dir, "--data-dir")
    folder = flags.to_data_dir or wanted.data_dir or old.data_dir
    new = _find(wanted, folder, "--to-data-dir")
    places = MovePlaces(old=old, new=new, to_config=flags.to_config)
    if not places.has_other_database and not places.has_other_blobs:
        raise StateError(
            "the source and the target are the same",
            hint="name another database or filestore in --to-config, or another --to-data-dir",
        )
    if flags.from_config is not None and flags.to_config is not None:
        _warn_of_differences(told, wanted)
    return places


def _find(told: FromFile, folder: Path | None, flag: str) -> ServerPlaces:
    folder = None if folder is None else folder.absolute()
    return ServerPlaces(
        database=told.postgres or SqliteFolder(folder=_require(folder, flag)),
        blobs=told.blobs or (None if folder is None else BlobFolder(folder=folder / FOLDER_NAME)),
        data_dir=folder,
    )


def _require(folder: Path | None, flag: str) -> Path:
    if folder is None:
        raise click.UsageError(f"{flag} is missing: in which folder is the SQLite file?")
    return folder


def _warn_of_differences(told: FromFile, wanted: FromFile) -> None:
    """Say which other settings change with the configuration."""
    names = {
        "address": (told.public_url, wanted.public_url),
        "stateKey": (told.state_key, wanted.state_key),
        "projects": (told.projects, wanted.projects),
        "sharedSSOConfigs": (told.shared_sso, wanted.shared_sso),
        "retention": (told.retention, wanted.retention),
        "limits": (told.limits, wanted.limits),
        "trustedProxies": (told.trusted_proxies, wanted.trusted_proxies),
        "proxyProtocol": (told.proxy_protocol, wanted.proxy_protocol),
    }
    if other := [f"spec.{name}" for name, (old, new) in names.items() if old != new]:
        click.echo(f"warning: --to-config says otherwise of {', '.join(other)}, too", err=True)
