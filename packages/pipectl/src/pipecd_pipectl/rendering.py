# SPDX-License-Identifier: Apache-2.0
"""Renders an application's files from the working copy, as piped would from a commit.

A module apart from the command, because it imports all of the configuration reader.
"""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipecd_model.config import ApplicationConfig, ConfigFaultsError, Fault, load_application
from pipecd_model.config.locate import Positions
from pipecd_model.config.path import format_path
from pipecd_model.errors import ConfigError
from pipecd_model.secrets import Opener, prepare
from pipecd_model.secrets.placeholder import problems, texts

MASK: Final = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The rendered templates, by their paths from the application's folder."""

    files: Mapping[str, bytes] = field(repr=False)
    warnings: tuple[Fault, ...]


def render_application(file: Path, *, keys: Sequence[Path], show_secrets: bool) -> Rendered:
    """Renders what an application file names. Raises ConfigFaultsError with all faults."""
    data = file.read_bytes()
    loaded = load_application(data, file=str(file))
    text = data.decode()
    _check_stages(loaded.config, str(file), text)
    root, folder = _repository(file)
    prepared = prepare(
        loaded.config,
        file=str(file),
        read=_reader(root),
        open_secret=_opener(keys, show_secrets=show_secrets),
        folder=folder,
        text=text,
    )
    files = {
        posixpath.relpath(path, folder or "."): content for path, content in prepared.files.items()
    }
    return Rendered(files=files, warnings=loaded.warnings)


def _check_stages(config: ApplicationConfig, file: str, text: str) -> None:
    """Raises ConfigFaultsError for secrets that stages name and that do not exist.

    Other options of stages are not checked: they are the plugin's.
    """
    known = config.encryption.encrypted_secrets if config.encryption else {}
    places = Positions(text)
    faults = []
    for stage in config.pipeline.stages:
        for path, option in texts(stage.with_, ("spec", "pipeline", "stages", stage.index, "with")):
            for problem in problems(option, known):
                line, column = places.value(path)
                faults.append(
                    Fault(
                        file=file,
                        line=line,
                        column=column,
                        path=format_path(path),
                        message=str(problem),
                        hint=problem.hint,
                    )
                )
    if faults:
        raise ConfigFaultsError(faults)


def _repository(file: Path) -> tuple[Path, str]:
    """Returns the root of a file's repository and the path of its folder in it.

    Outside of a repository the root is the folder itself.
    """
    folder = file.resolve().parent
    for root in (folder, *folder.parents):
        if (root / ".git").exists():
            path = folder.relative_to(root).as_posix()
            return root, "" if path == "." else path
    return folder, ""


def _reader(root: Path) -> Callable[[str], bytes | None]:
    def read(path: str) -> bytes | None:
        found = (root / path).resolve()
        if not found.is_relative_to(root):
            raise ConfigError(
                f"{path!r} is a link that leads out of {str(root)!r}",
                hint="piped does not follow it either",
            )
        return found.read_bytes() if found.is_file() else None

    return read


def _opener(keys: Sequence[Path], *, show_secrets: bool) -> Callable[[str], str]:
    opener = Opener(*(key.read_bytes() for key in keys)) if keys else None

    def open_secret(closed: str) -> str:
        opened = opener.open(closed) if opener else MASK
        return opened if show_secrets else MASK

    return open_secret
