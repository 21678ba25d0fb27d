# SPDX-License-Identifier: Apache-2.0
"""Packages of code: built of a commit of a git repository, or fetched back from AWS.

The same files make the same package, byte by byte: its hash tells whether the code has changed.
"""

import asyncio
import base64
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipecd_plugin_lambda.manifest import GitSource
from pipecd_plugin_lambda.provider.functions import LiveFunction
from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.hosts import Hosts, hide_password

LARGEST_PACKAGE: Final = 50 * 1024 * 1024
"""Bytes of a package that AWS takes directly."""
LARGEST_CODE: Final = 250 * 1024 * 1024
"""Bytes of its files."""
_FIRST_DAY: Final = (1980, 1, 1, 0, 0, 0)
_SECONDS: Final = 60


async def build_package(source: GitSource, hosts: Hosts) -> tuple[bytes, str]:
    """Returns the package of a commit, and the commit's hash. Raises StageFailedError."""
    import tempfile  # noqa: PLC0415 - a plugin that waits needs none of it

    from pipecd_sdk.kit.git import fetch_commit  # noqa: PLC0415 - as above

    addresses = await hosts.check(source.git, "spec.source.git", schemes=("https", "http", "ssh"))
    with tempfile.TemporaryDirectory(prefix="pipecd-lambda-") as work:
        clone = Path(work) / "clone"
        commit = await fetch_commit(
            source.git,
            source.ref,
            into=clone,
            what=f"fetching the code from {hide_password(source.git)!r}",
            option="spec.source.ref",
            addresses=addresses,
        )
        return await asyncio.to_thread(make_package, clone, source.path), commit


def make_package(root: Path, path: str) -> bytes:
    """Returns a package of a folder; its name begins the names of the files, as upstream has it.

    Raises StageFailedError for a folder that is none, or leads out, or is too large.
    """
    import zipfile  # noqa: PLC0415 - a plugin that waits needs none of it

    root = root.resolve()
    folder = (root / path).resolve()
    if not _is_code(folder, root) or not folder.is_dir():
        raise StageFailedError(f"spec.source.path is not a folder of the repository: {path!r}")
    base = folder.parent if folder != root else folder
    made = io.BytesIO()
    total = 0
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for file in _list_files(folder, root):
            total += file.stat().st_size
            if total > LARGEST_CODE:
                raise StageFailedError(
                    "the code has more than 250 MiB, the most that AWS takes",
                    hint="name a smaller spec.source.path, or deploy an image",
                )
            entry = zipfile.ZipInfo(str(file.relative_to(base)), _FIRST_DAY)
            is_executable = file.stat().st_mode & stat.S_IXUSR
            entry.external_attr = (stat.S_IFREG | (0o755 if is_executable else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    if not total:
        raise StageFailedError(f"spec.source.path has no files: {path or '.'!r}")
    package = made.getvalue()
    if len(package) > LARGEST_PACKAGE:
        raise StageFailedError(
            f"the package has {len(package) // 1024 // 1024} MiB, AWS takes 50 MiB directly",
            hint="put it into S3 and name it with s3Bucket and s3Key",
        )
    return package


def _list_files(folder: Path, root: Path) -> Iterator[Path]:
    """Yields the files of a folder in their order. A link is refused that leads out or to a folder.

    Links to folders are not followed: their files would be missing, and nobody would be told.
    """
    for current, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in folders:
            if (link := Path(current) / name).is_symlink():
                raise StageFailedError(
                    f"{str(link.relative_to(root))!r} is a link to a folder, which a package"
                    " cannot have",
                    hint="put the files there, or name another spec.source.path",
                )
        for name in sorted(files):
            file = Path(current) / name
            if not _is_code(file.resolve(), root) or not file.is_file():
                raise StageFailedError(
                    f"{str(file.relative_to(root))!r} is a link that leads out, or to nothing"
                )
            yield file


def _is_code(path: Path, root: Path) -> bool:
    """Returns whether a path is of the commit: neither outside nor among the files of git."""
    return path.is_relative_to(root) and ".git" not in path.relative_to(root).parts


def hash_package(package: bytes) -> str:
    """Returns the hash of a package as AWS writes it."""
    return base64.b64encode(hashlib.sha256(package).digest()).decode()


async def download_package(version: LiveFunction, *, is_http_allowed: bool) -> bytes | None:
    """Returns the package of a published version; None when AWS does not give it.

    What comes is used only when its hash is the version's.
    """
    location = str(version.code.get("Location") or "")
    allowed = ("https://", "http://") if is_http_allowed else ("https://",)
    if not location.startswith(allowed):
        return None
    package = await asyncio.to_thread(_fetch, location)
    if package is None or hash_package(package) != version.code_hash:
        return None
    return package


def _fetch(location: str) -> bytes | None:
    import urllib.request  # noqa: PLC0415 - a plugin that waits needs none of it

    try:
        with urllib.request.urlopen(location, timeout=_SECONDS) as answer:  # noqa: S310 - checked
            read: bytes = answer.read(LARGEST_PACKAGE + 1)
    except (OSError, ValueError):
        return None
    return read if len(read) <= LARGEST_PACKAGE else None
