# SPDX-License-Identifier: Apache-2.0
"""The folder of a commit that is deployed: where, what is left out, what must not be shown."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pipecd_plugin_files.config import FilesOptions
from pipecd_sdk import Source, StageFailedError
from pipecd_sdk.kit import patterns


class SourceFolder(NamedTuple):
    """A folder to deploy."""

    path: str
    excluded: Callable[[str], bool]
    hidden: Callable[[str], bool]
    options: FilesOptions
    commit: str


def folder_of(source: Source) -> SourceFolder:
    """Returns the folder that an application's options name. Raises StageFailedError."""
    options: FilesOptions = source.options
    root = os.path.realpath(source.directory)
    path = os.path.realpath(os.path.join(root, options.source))  # noqa: PTH118
    if path != root and not path.startswith(f"{root}/"):
        raise StageFailedError(
            f"the source {options.source!r} leads out of the application's folder",
            hint="it may be a link; name a real folder",
        )
    if not Path(path).is_dir():
        raise StageFailedError(
            f"the source {options.source!r} is not a folder of the commit",
            hint="it is read within the application's folder",
        )
    # Here and not above: a plugin that only waits for work needs no parser in memory.
    from pipecd_sdk.kit.opened_files import list_opened_files  # noqa: PLC0415

    own = "" if path == root else os.path.relpath(path, root) + "/"
    return SourceFolder(
        path=path,
        excluded=_make_exclude_rule(options, "" if own else source.config_filename),
        hidden=_make_hide_rule(options, list_opened_files(source), own),
        options=options,
        commit=source.commit_hash,
    )


def _make_exclude_rule(options: FilesOptions, config_filename: str) -> Callable[[str], bool]:
    # The application file is for piped, and `.git` for git; neither is part of what is deployed.
    always = {".git", config_filename} - {""}
    if not options.exclude:
        return always.__contains__
    return lambda path: path in always or patterns.matches(options.exclude, path)


def _make_hide_rule(options: FilesOptions, opened: set[str], own: str) -> Callable[[str], bool]:
    return lambda path: own + path in opened or patterns.matches(options.hide, path)
