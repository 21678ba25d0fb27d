# SPDX-License-Identifier: Apache-2.0
"""The start of a plugin that is one file: unpacks itself once, and runs.

Copied as `__main__.py`. It runs under whatever Python the shell finds, so nothing here is newer
than Python 3.6.
"""

import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path


def main(python: str, digest: str, module: str, function: str) -> None:
    """Run `module:function` from the files in this archive, with Python `python`."""
    if sys.version_info[:2] != tuple(int(part) for part in python.split(".")):
        _use("python" + python)
    archive = Path(sys.argv[0]).resolve()
    sys.path[0] = str(_unpack(archive, digest))
    getattr(__import__(module, fromlist=[function]), function)()


def _use(python: str) -> None:
    found = shutil.which(python)
    if found is None:
        have = ".".join(str(part) for part in sys.version_info[:2])
        sys.exit("this plugin needs " + python + " on the PATH; the one that runs it is " + have)
    os.execv(found, [found, *sys.argv])  # noqa: S606 - no shell is wanted


def _unpack(archive: Path, digest: str) -> Path:
    root = Path(os.environ.get("PIPECD_PLUGIN_CACHE") or "~/.cache/pipecd/plugins").expanduser()
    folder = root / digest
    if folder.is_dir():
        return folder
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=digest + ".", dir=str(root)))
        with zipfile.ZipFile(str(archive)) as packed:
            packed.extractall(str(fresh))
    except OSError as error:
        sys.exit("cannot unpack the plugin: {}; set PIPECD_PLUGIN_CACHE to a folder".format(error))  # noqa: UP032 - old Pythons
    try:
        fresh.rename(folder)
    except OSError:
        # Another process was faster; its files are the same.
        shutil.rmtree(str(fresh), ignore_errors=True)
    return folder
