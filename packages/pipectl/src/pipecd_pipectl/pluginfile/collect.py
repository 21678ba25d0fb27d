# SPDX-License-Identifier: Apache-2.0
"""Gather the files of installed distributions, and of the plugin itself, in one folder."""

import json
import shutil
import sys
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import unquote, urlparse

from pipecd_pipectl.pluginfile.closure import BuildError, Project, are_installed
from pipecd_runtime.process import operator_environment, own, run_blocking, word


def collect(project: Project, needed: list[Distribution], into: Path) -> None:
    """Copies the plugin and all it needs into a folder that Python can import from."""
    for each in needed:
        source = _editable_source(each)
        if source is not None:
            _install(source, into, isolated=False)
        else:
            _copy(each, into)
    _install(project.folder, into, isolated=not are_installed(project.build_requirements))


def _editable_source(installed: Distribution) -> Path | None:
    """Returns the source folder of an editable installation; None for other installations."""
    text = installed.read_text("direct_url.json")
    about = json.loads(text) if text else {}
    if not about.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlparse(about["url"]).path))


def _copy(installed: Distribution, into: Path) -> None:
    for file in installed.files or ():
        # Commands and pages of the environment, above its folder of packages, are not needed.
        if ".." in file.parts or file.suffix == ".pyc":
            continue
        target = into / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.locate(), target)


def _install(source: Path, into: Path, *, isolated: bool) -> None:
    command = (
        word(sys.executable),
        *own("-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *(*own("--no-deps", "--no-compile", "--target"), word(into.absolute()), *own("--upgrade")),
        *(() if isolated else own("--no-build-isolation")),
        *(*own("--"), word(source)),
    )
    done = run_blocking(command, env=operator_environment())
    if done.returncode != 0:
        raise BuildError(f"cannot build {str(source)!r}:\n{done.stderr.strip()}")
