# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of a Containerfile in folders, where there is no engine for containers.

A folder is the root of a system; `RUN` is a shell in it. What an engine has beyond that (layers,
caches, a network of its own) is missing, and what the file says is all that happens.
"""

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

KNOWN_WITHOUT_EFFECT = {"EXPOSE", "STOPSIGNAL", "VOLUME"}


class ContainerfileError(Exception):
    """A step that this does not know, or that failed; says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instruction with its arguments as they are written."""

    word: str
    rest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What the steps have made: a root folder, and how a container of it starts."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = "0:0"
    folder: str = "/"
    volumes: tuple[str, ...] = ()
    entry: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


def parse(text: str) -> list[Step]:
    """Returns the steps of a Containerfile; lines that end with a backslash go on."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    steps = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        steps.append(Step(word=word.upper(), rest=rest.strip()))
    return steps


class Builder:
    """Builds images of a context, from images that are there already."""

    def __init__(
        self, work: Path, context: Path, images: dict[str, Image], variables: Mapping[str, str]
    ) -> None:
        """`images` are those that FROM may name, `variables` are for RUN and in no image."""
        self.images = images
        self._work = work
        self._context = context
        self._variables = variables

    def build(self, file: Path) -> Image:
        """Runs all steps of a file; returns the last image. Raises ContainerfileError."""
        stages: dict[str, Image] = {}
        current: Image | None = None
        name = ""
        for number, step in enumerate(parse(file.read_text())):
            if step.word == "FROM":
                source, _, name = step.rest.partition(" AS ")
                folder = self._work / f"{file.stem}-{number}"
                current = self._start(source, name, folder)
            elif current is None:
                raise ContainerfileError(f"{file}: {step.word} before FROM")
            else:
                current = self._take(current, step, stages)
            stages[name] = current
        if current is None:
            raise ContainerfileError(f"{file}: no FROM")
        return current

    def _start(self, source: str, name: str, folder: Path) -> Image:
        if source not in self.images:
            raise ContainerfileError(f"no image {source!r} for {name or 'the last stage'}")
        base = self.images[source]
        # Not shutil.copytree: owners, devices and links count.
        subprocess.run(["cp", "-a", base.root, folder], check=True, timeout=300)
        return replace(base, root=folder)

    def _take(self, image: Image, step: Step, stages: Mapping[str, Image]) -> Image:
        match step.word:
            case "RUN":
                self._run(image, step.rest)
            case "COPY":
                self._copy(image, step.rest, stages)
            case "ENV":
                pairs = dict(part.split("=", 1) for part in shlex.split(step.rest))
                return replace(image, environment={**image.environment, **pairs})
            case "USER":
                user = "0:0" if step.rest == "root" else step.rest
                return replace(image, user=user)
            case "WORKDIR":
                return replace(image, folder=step.rest)
            case "ENTRYPOINT":
                return replace(image, entry=tuple(json.loads(step.rest)), command=())
            case "CMD":
                return replace(image, command=tuple(json.loads(step.rest)))
            case "VOLUME":
                return replace(image, volumes=(*image.volumes, step.rest))
            case word if word not in KNOWN_WITHOUT_EFFECT:
                raise ContainerfileError(f"unknown instruction {word}")
        return image

    def _run(self, image: Image, script: str) -> None:
        program = shutil.which("chroot") or "/usr/sbin/chroot"
        command = [program, f"--userspec={image.user}", str(image.root)]
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
        variables |= {"HOME": "/root", **self._variables, **image.environment}
        done = subprocess.run(
            [*command, "/bin/sh", "-ec", script],
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if done.returncode != 0:
            raise ContainerfileError(f"RUN {script}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")

    def _copy(self, image: Image, rest: str, stages: Mapping[str, Image]) -> None:
        *options, source, target = rest.split()
        origin = self._context
        for option in options:
            key, _, value = option.partition("=")
            if key != "--from":
                raise ContainerfileError(f"COPY {option} is not known")
            origin = stages[value].root
        place = image.root / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        found = origin / source.lstrip("/")
        if found.is_dir():
            shutil.copytree(found, place, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(found, place)
