# SPDX-License-Identifier: Apache-2.0
"""Prepares an application of a commit: its file in the plugins' format, its secrets decrypted.

Every read of an application passes here, so that its secrets are known, and masked, before anything
can show them. Files are rendered in memory, and written only when all of them are rendered.
"""

import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from pipecd_model.config import ApplicationConfig, application_for_plugins, load_application
from pipecd_model.errors import ConfigError, SourceError
from pipecd_model.secrets import prepare
from pipecd_piped.secrets import KnownSecrets, OpenedSecrets, SecretKeys
from pipecd_piped.source.application import ApplicationFile
from pipecd_piped.source.worktree import run_in_thread
from pipecd_wire.model.common_pb2 import ApplicationGitPath

REMEMBERED: Final = 512
"""Decrypted secrets in the cache."""

PARSED: Final = 512
"""Parsed application files in the cache: each stage of a deployment reads the same one, and so does
each look at its live state, every minute."""

PARSED_BYTES: Final = 64 * 1024
"""The largest application file that is kept there."""

MOST_BYTES: Final = 32 * 1024 * 1024
"""The limit for all files together that are attached, or rendered with secrets."""

Names = Callable[[], Mapping[str, str]]
"""Returns the configured names of well-known plugins, where they differ from the usual ones."""


class Preparation:
    """Decrypts secrets and renders attachments into the files of a commit."""

    def __init__(
        self,
        *,
        names: Names = dict,
        keys: SecretKeys | None = None,
        known: KnownSecrets | None = None,
    ) -> None:
        self._names = names
        self._keys = keys
        self._known = known or KnownSecrets()
        self._values: dict[str, str] = {}
        self._parse = lru_cache(maxsize=PARSED)(_parse)

    async def read(
        self, git_path: ApplicationGitPath, commit: str, file: ApplicationFile
    ) -> tuple[ApplicationConfig, bytes]:
        """Returns a parsed application file, and its bytes as plugins get it; raises ConfigError.

        A file of an older kind is converted to the current format, with the plugin for its kind.
        """
        names = tuple(sorted(self._names().items()))
        parse = self._parse if len(file.data) <= PARSED_BYTES else _parse
        config, data = parse(file.data, file.place.file, names)
        opened = OpenedSecrets()
        if config.encryption is not None:
            # Milliseconds for each secret, which would block the event loop.
            opened = await run_in_thread(self._open_all, config.encryption.encrypted_secrets)
        self._known.learn(git_path, commit, opened)
        return config, data

    def render(
        self, root: Path, file: ApplicationFile, config: ApplicationConfig
    ) -> dict[Path, bytes]:
        """Returns the files of a worktree with their secrets and attachments rendered.

        Raises ConfigError with everything that is wrong. Writes nothing.
        """
        if not is_rendered(config):
            return {}
        prepared = prepare(
            config,
            file=file.place.file,
            folder=file.place.folder,
            text=file.data.decode(errors="replace"),
            read=_TreeReader(root),
            open_secret=partial(self._open, self._keys) if self._keys is not None else None,
        )
        return {_inside(root, path): content for path, content in prepared.files.items()}

    def _open_all(self, closed: Mapping[str, str]) -> OpenedSecrets:
        values: dict[str, str] = {}
        problems: dict[str, ConfigError] = {}
        for name, text in closed.items():
            if self._keys is None:
                problems[name] = ConfigError(
                    "this piped cannot open secrets",
                    hint="set secretManagement in its configuration",
                )
                continue
            try:
                values[name] = self._open(self._keys, text)
            except ConfigError as error:
                problems[name] = error
        return OpenedSecrets(values=values, problems=problems)

    def _open(self, keys: SecretKeys, closed: str) -> str:
        """Returns a decrypted secret; cached, because each stage of a deployment needs it."""
        if closed not in self._values:
            value = keys.opener.open(closed)
            while len(self._values) >= REMEMBERED:
                self._values.pop(next(iter(self._values)), None)
            self._values[closed] = value
            return value
        return self._values.get(closed) or keys.opener.open(closed)


def _parse(
    data: bytes, file: str, names: tuple[tuple[str, str], ...]
) -> tuple[ApplicationConfig, bytes]:
    """Returns a parsed application file, and its bytes as plugins get it; raises ConfigError."""
    config = load_application(data, file=file, names=dict(names)).config
    return config, application_for_plugins(data, file=file, names=dict(names))


def is_rendered(config: ApplicationConfig) -> bool:
    """Returns whether secrets or attachments are written into the files of an application."""
    return config.encryption is not None or config.attachment is not None


def _inside(root: Path, path: str) -> Path:
    """Resolves links of a path; raises SourceError if it leaves the worktree or enters `.git`."""
    top = os.path.realpath(root)
    found = os.path.realpath(root / path)
    if not found.startswith(f"{top}/") or found.startswith(f"{top}/.git/"):
        raise SourceError(
            f"{path!r} leads out of the repository through a symbolic link",
            hint="put the file itself there",
        )
    return Path(found)


class _TreeReader:
    """Reads files of a tree, up to a number of bytes for all of them: a few kilobytes of a
    repository can stand for gigabytes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._left = MOST_BYTES

    def __call__(self, path: str) -> bytes | None:
        """Returns the contents of a file, None when there is none. Raises SourceError."""
        target = _inside(self._root, path)
        try:
            if not target.is_file():
                return None
            with target.open("rb") as file:
                content = file.read(self._left + 1)
        except OSError as error:
            raise SourceError(f"cannot read {path!r}: {os.strerror(error.errno or 0)}") from error
        self._left -= len(content)
        if self._left < 0:
            raise SourceError(
                f"the attachments and targets have more than {MOST_BYTES // 2**20} MiB together",
                hint=f"is {path!r} the right file?",
            )
        return content


def write(rendered: Mapping[Path, bytes]) -> None:
    """Write rendered files to their paths in the worktree; raises SourceError."""
    for target, content in rendered.items():
        try:
            number = os.open(target, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
            with os.fdopen(number, "wb") as file:
                file.write(content)
        except OSError as error:
            raise SourceError(
                f"cannot write {target.name!r}: {os.strerror(error.errno or 0)}",
                hint="check the disk and who owns the data folder",
            ) from error
