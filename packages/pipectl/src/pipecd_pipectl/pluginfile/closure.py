# SPDX-License-Identifier: Apache-2.0
"""What a plugin needs to run: its requirements and theirs, as they are installed here."""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


class BuildError(Exception):
    """The file cannot be made; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A plugin's folder, as its pyproject.toml describes it."""

    folder: Path
    name: str
    command: str
    entry: str
    """`module:function` of the command."""
    requirements: tuple[str, ...]
    build_requirements: tuple[str, ...]


def read_project(folder: Path, extras: Iterable[str] = (), *, command: str = "") -> Project:
    """Returns the project of a folder's pyproject.toml, with extras of its. Raises BuildError.

    `command` is the one to run, where there are several.
    """
    file = folder / "pyproject.toml"
    try:
        document = tomllib.loads(file.read_text())
    except OSError as error:
        raise BuildError(f"cannot read {str(file)!r}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise BuildError(f"{file}: {error}") from None
    project = document.get("project", {})
    scripts = project.get("scripts", {})
    if command and command not in scripts:
        known = ", ".join(scripts) or "none"
        raise BuildError(f"{file}: there is no command {command!r}; it has {known}")
    if not command and len(scripts) != 1:
        which = f": choose one with --command: {', '.join(scripts)}" if scripts else ""
        raise BuildError(
            f"{file}: [project.scripts] must name one command, and names {len(scripts)}{which}"
        )
    command = command or next(iter(scripts))
    return Project(
        folder=folder,
        name=project.get("name", folder.name),
        command=command,
        entry=scripts[command],
        requirements=(*project.get("dependencies", ()), *_read_extras(file, project, extras)),
        build_requirements=tuple(document.get("build-system", {}).get("requires", ())),
    )


def _read_extras(file: Path, project: dict[str, Any], extras: Iterable[str]) -> Iterator[str]:
    """Yields what extras of a plugin need beyond its dependencies. Raises BuildError."""
    offered = {
        canonicalize_name(name): needed
        for name, needed in project.get("optional-dependencies", {}).items()
    }
    for extra in extras:
        if (key := canonicalize_name(extra)) not in offered:
            known = ", ".join(offered) or "none"
            raise BuildError(f"{file}: there is no extra {extra!r}; it has {known}")
        yield from offered[key]


def closure(requirements: Iterable[str]) -> list[Distribution]:
    """Returns all installed distributions that these need, each once. Raises BuildError."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(text, "") for text in requirements]
    while waiting:
        text, of_extra = waiting.pop()
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            raise BuildError(f"not a requirement: {text!r}") from None
        if wanted.marker and not wanted.marker.evaluate({"extra": of_extra}):
            continue
        name = canonicalize_name(wanted.name)
        for extra in ("", *wanted.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                found[name] = _find_distribution(wanted)
                waiting += [(each, extra) for each in found[name].requires or ()]
    return [found[name] for name in sorted(found)]


def _find_distribution(wanted: Requirement) -> Distribution:
    try:
        have = distribution(wanted.name)
    except PackageNotFoundError:
        raise BuildError(
            f"{wanted.name!r} is not installed here: install the plugin first, then build it"
        ) from None
    if wanted.specifier and not wanted.specifier.contains(have.version, prereleases=True):
        raise BuildError(f"{wanted} is needed, and {have.version} is installed here")
    return have


def are_installed(requirements: Iterable[str]) -> bool:
    """Returns whether all of these requirements are installed here."""
    try:
        closure(requirements)
    except BuildError:
        return False
    return True
