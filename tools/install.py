# SPDX-License-Identifier: Apache-2.0
"""Install what running needs, or what developing needs too, into an environment, with progress.

    python tools/install.py .venv              what running needs
    python tools/install.py .venv --developing what building, checking and testing need as well

Third parties come from requirements.lock (and requirements-dev.lock), each file checked against its
hash; our own distributions are installed so that a change of the source counts at once. Nothing but
the standard library is used here: it runs before anything is installed.
"""

import argparse
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = "requirements.lock"
DEV_LOCK = "requirements-dev.lock"
SOURCES = ("packages", "plugins")
SUPPORT = Path("tests", "support")
TICK_SECONDS = 0.2
PLAIN_SECONDS = 5.0
"""How often a line is printed where lines cannot be rewritten."""

PIN = re.compile(r"^[A-Za-z0-9._-]+==", re.MULTILINE)
FOUND = re.compile(r"(?:Collecting|Requirement already satisfied:) ([^\s=]+)")
OBTAINED = re.compile(r"Obtaining file://\S*/(\S+)")


class InstallError(Exception):
    """It cannot be installed; says why."""


class InstallProgress:
    """One line that says what is being done, how much of it, and for how long."""

    def __init__(self) -> None:
        self._text = ""
        self._began = self._told = time.monotonic()
        self._rewrites = sys.stdout.isatty()
        self._over = threading.Event()

    def say(self, text: str) -> None:
        self._text = text

    def print(self, line: str) -> None:
        """Print a line that stays."""
        print(f"\r\x1b[K{line}" if self._rewrites else line, flush=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @contextmanager
    def shown(self) -> Iterator[None]:
        thread = threading.Thread(target=self._show, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            if self._rewrites:
                print("\r\x1b[K", end="", flush=True)

    def _show(self) -> None:
        while not self._over.wait(TICK_SECONDS):
            line = f"  {self._text}"[:68] + f"  {self.seconds:.0f} s"
            if self._rewrites:
                print(f"\r\x1b[K{line}", end="", flush=True)
            elif time.monotonic() - self._told >= PLAIN_SECONDS:
                self._told = time.monotonic()
                print(line, flush=True)


class Installation:
    """An environment, and the pip in it."""

    def __init__(self, root: Path, environment: Path, progress: InstallProgress) -> None:
        self._root = root
        self._environment = environment
        self._progress = progress

    @property
    def _python(self) -> Path:
        return self._environment / "bin" / "python"

    def make(self) -> None:
        if self._python.exists():
            return
        self._progress.say(f"making the environment {self._environment}")
        # The command and not the module: one without `ensurepip` says there which package has it.
        done = subprocess.run(
            [sys.executable, "-m", "venv", str(self._environment)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise InstallError(f"no environment can be made: {(done.stdout + done.stderr).strip()}")

    def add_third_parties(self, locks: list[str]) -> int:
        total = sum(len(PIN.findall((self._root / lock).read_text())) for lock in locks)
        arguments = ["--require-hashes", "--no-compile"]
        for lock in locks:
            arguments += ["-r", lock]
        seen = 0
        self._progress.say(f"0 of {total} packages")
        for line in self._pip(arguments):
            if found := FOUND.match(line.strip()):
                seen += 1
                self._progress.say(f"{seen} of {total} packages: {found[1]}")
            elif line.startswith("Installing collected packages"):
                self._progress.say(f"unpacking {line.count(',') + 1} of {total} packages")
        return total

    def add_own(self, folders: list[Path]) -> None:
        """Install our distributions; a change of their source counts at once."""
        arguments = ["--no-build-isolation"]
        for folder in folders:
            arguments += ["-e", f"./{folder}"]
        seen = 0
        self._progress.say(f"0 of {len(folders)} packages of PipeCD")
        for line in self._pip(arguments):
            if found := OBTAINED.match(line.strip()):
                seen += 1
                self._progress.say(f"{seen} of {len(folders)} packages of PipeCD: {found[1]}")

    def check(self) -> None:
        """Raise InstallError when what is installed does not fit together."""
        done = subprocess.run(
            [str(self._python), "-m", "pip", "--disable-pip-version-check", "check"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise InstallError(f"what is installed does not fit together:\n{done.stdout.strip()}")

    def compile(self) -> None:
        """Compile what is imported at the start, so that the first one is not slower."""
        self._progress.say("compiling")
        [packages] = self._environment.glob("lib/python*/site-packages")
        folders = [str(packages), *SOURCES]
        command = [
            str(self._python),
            "-m",
            "compileall",
            "-q",
            "-j",
            "0",
            "-x",
            "site-packages/pip",
        ]
        # Its result does not matter: what cannot be compiled is not imported either.
        subprocess.run([*command, *folders], cwd=self._root, capture_output=True, check=False)

    def _pip(self, arguments: list[str]) -> Iterator[str]:
        """Run `pip install` and give what it says, line by line."""
        command = [str(self._python), "-m", "pip", "--disable-pip-version-check", "install"]
        with subprocess.Popen(
            [*command, "--no-deps", "--no-input", "--progress-bar", "off", *arguments],
            cwd=self._root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            errors: list[str] = []
            for line in process.stdout or ():
                if line.lstrip().startswith(("WARNING", "ERROR")) or errors:
                    errors.append(line.rstrip())
                if line.startswith("WARNING: Retrying"):
                    self._progress.say("the package index does not answer; trying again")
                yield line
        if process.returncode != 0:
            said = "\n".join(errors[-20:])
            raise InstallError(
                f"{said}\n\ninstalling failed: see above; then run it again, it goes on from here"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment", type=Path, help="made if it is not there")
    parser.add_argument("--developing", action="store_true", help="what developing needs too")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    arguments = parser.parse_args()
    progress = InstallProgress()
    installation = Installation(arguments.root, arguments.environment.absolute(), progress)
    locks, purpose = (
        ([LOCK, DEV_LOCK], "developing") if arguments.developing else ([LOCK], "running")
    )
    progress.print(f"Installing what {purpose} needs into {arguments.environment}")
    try:
        with progress.shown():
            installation.make()
            total = installation.add_third_parties(locks)
            own = own_folders(arguments.root, developing=arguments.developing)
            installation.add_own(own)
            installation.check()
            installation.compile()
    except InstallError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run it again, it goes on from here", file=sys.stderr)
        return 130
    progress.print(
        f"Installed {total} packages and {len(own)} of PipeCD's own in {progress.seconds:.0f} s"
    )
    return 0


def own_folders(root: Path, *, developing: bool) -> list[Path]:
    """Return the folders of our distributions, relative to the checkout."""
    found = [
        file.parent.relative_to(root)
        for folder in SOURCES
        for file in sorted((root / folder).glob("*/pyproject.toml"))
    ]
    return [*found, SUPPORT] if developing else found


if __name__ == "__main__":
    sys.exit(main())
