# SPDX-License-Identifier: Apache-2.0
"""Environments of a Python that hold nothing of ours but what a test installs from archives."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PASSED_ON = ("LANG", "TMPDIR", "SSL_CERT_FILE", "http_proxy", "https_proxy", "no_proxy")
"""Variables of the test that the programs in an environment get; pip's own are added."""


def find_pythons(versions: tuple[str, ...]) -> dict[str, Path]:
    """Returns the interpreters of these versions that are on this machine and can make venvs."""
    found = {}
    for version in versions:
        for candidate in _candidates(version):
            tell = "import ensurepip, ssl, sys; print('%d.%d' % sys.version_info[:2])"
            try:
                done = subprocess.run(
                    [candidate, "-c", tell], capture_output=True, text=True, check=False, timeout=60
                )
            except OSError:
                continue
            if done.returncode == 0 and done.stdout.strip() == version:
                found[version] = candidate
                break
    return found


def _candidates(version: str) -> Iterator[Path]:
    if version == "{}.{}".format(*sys.version_info[:2]):
        yield Path(sys.executable)
    if (known := shutil.which(f"python{version}")) is not None:
        yield Path(known)
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)


class CleanEnvironment:
    """One environment, with a home of its own; nothing of the checkout can be imported in it."""

    def __init__(self, folder: Path, python: Path, archives: Path) -> None:
        """Makes it. `archives` holds our own distributions; others come from pip's index."""
        self.folder = folder
        self.home = folder / "home"
        self._variables = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
        self._variables |= {
            key: value for key, value in os.environ.items() if key.startswith("PIP_")
        }
        self._variables |= {
            "HOME": str(self.home),
            "PATH": f"{folder / 'venv' / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "PIP_CACHE_DIR": _cache_folder(),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_FIND_LINKS": f"{os.environ.get('PIP_FIND_LINKS', '')} {archives}".strip(),
            "PIP_ONLY_BINARY": ":all:",
        }
        settings = Path("~/.config/pip/pip.conf").expanduser()
        if settings.is_file():  # the home is another one there
            self._variables.setdefault("PIP_CONFIG_FILE", str(settings))
        self.home.mkdir(parents=True)
        subprocess.run(
            [python, "-m", "venv", folder / "venv"], check=True, timeout=120, env=self._variables
        )

    def install(self, *requirements: str, constraints: Path | None = None) -> None:
        """Installs requirements, as pip resolves them."""
        limits = ("--constraint", str(constraints)) if constraints else ()
        self.run("python", "-m", "pip", "install", "--quiet", *limits, *requirements)

    def run(
        self, *command: str, extra: Mapping[str, str] | None = None, timeout_seconds: float = 300
    ) -> str:
        """Runs a command of it in its home; returns what it prints. It must succeed."""
        done = subprocess.run(
            command,
            cwd=self.home,
            env={**self._variables, **(extra or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, *command: str, log: Path) -> "subprocess.Popen[bytes]":
        """Starts a command of it; the caller ends it."""
        with log.open("wb") as sink:
            program = shutil.which(command[0], path=self._variables["PATH"])
            assert program is not None, command[0]
            return subprocess.Popen(
                [program, *command[1:]],
                cwd=self.home,
                env={**self._variables, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )

    def list_installed(self) -> dict[str, str]:
        """Returns the versions of all that is installed in it."""
        listed = self.run("python", "-m", "pip", "list", "--format", "json")
        return {each["name"].lower(): each["version"] for each in json.loads(listed)}


def _cache_folder() -> str:
    """Returns pip's cache of the person who runs the tests, so that downloads are kept."""
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return asked.stdout.strip()
