# SPDX-License-Identifier: Apache-2.0
"""The folder of a commit that is deployed: where, what is left out, what must not be shown."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pipecd_plugin_files.config import FilesOptions
from pipecd_sdk import Source, StageFailedError
from pipecd_sdk.kit import patterns
from pipecd_sdk.kit.opened_files import list_opened_files


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
    own = "" if path == root else os.path.relpath(path, root) + "/"
    return SourceFolder(
        path=path,
        excluded=_make_exclude_rule(options, "" if own else source.config_filename),
        hidden=_make_hide_rule(options, _find_opened_files(source, root), own),
        options=options,
        commit=source.commit_hash,
    )


def _make_exclude_rule(options: FilesOptions, config_filename: str) -> Callable[[str], bool]:
    # The application file is for piped, and `.git` for git; neither is part of what is deployed.
    always = {".git", config_filename} - {""}
    if not options.exclude:
        return always.__contains__
    return lambda path: path in always or patterns.matches(options.exclude, path)


def _find_opened_files(source: Source, root: str) -> set[str]:
    """Returns the files that may hold opened secrets: as they are named, and where they really are.

    piped writes through a link, into the file that it leads to.
    """
    named = list_opened_files(source)
    real = (os.path.realpath(os.path.join(root, each)) for each in named)  # noqa: PTH118
    return named | {os.path.relpath(each, root) for each in real}


def _make_hide_rule(options: FilesOptions, opened: set[str], own: str) -> Callable[[str], bool]:
    return lambda path: own + path in opened or patterns.matches(options.hide, path)
