# SPDX-License-Identifier: Apache-2.0
"""Runs the program in an application's folder: init, workspace, plan, show, state.

Nothing from outside stands in its arguments, which every user of the machine can read: flags and
variables are passed in TF_CLI_ARGS_<command>, of which the program reads them as if they did.
"""

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pipecd_plugin_terraform.changes import Changes, read_changes, read_messages
from pipecd_plugin_terraform.masking import Mask
from pipecd_plugin_terraform.messages import MessageReader, explain
from pipecd_sdk import Severity, StageFailedError, StageLog, TargetError
from pipecd_sdk.kit import shell
from pipecd_sdk.kit.process import Argument, join_option, own, word
from pipecd_sdk.kit.shell import CompletedCommand
from pipecd_sdk.kit.text import make_printable, make_printable_line
from pipecd_sdk.scripts.attempt import LogText, Translate

ALWAYS: Final = {"TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}
NO_CHANGES: Final = 0
HAS_CHANGES: Final = 2
LOCAL: Final = "local"
MOST_ARGUMENTS: Final = 128 * 1024 - 64
"""Bytes of variables and flags: a system takes no longer variable of the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """What the commands are run with. Its values may be secrets and are shown nowhere."""

    environment: Mapping[str, str]
    """Of all commands."""
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """More of single ones."""
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Flags and variables of the commands."""
    workspace: str = ""
    creates_workspace: bool = False
    mask: Mask = field(default_factory=Mask)
    """Of what is secret in all that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChanges:
    """A plan that was made."""

    changes: Changes
    file: Path


class OutputTooLargeError(TargetError):
    """What the program prints is more than is read of it."""


class Terraform:
    """The program, in one folder."""

    def __init__(
        self,
        program: Path,
        directory: Path,
        settings: CommandSettings,
        *,
        name: str,
        data: Path | None = None,
        limit: timedelta | None = None,
    ) -> None:
        """`data`: where it keeps what init has made; `limit`: how long a command may take."""
        self.program = program
        self.directory = directory
        self.name = name
        self._settings = settings
        self._data = data or directory / ".terraform"
        self._limit = limit

    def environment(self, command: str) -> dict[str, str]:
        """Returns the environment of a command, with its flags and variables in it."""
        settings = self._settings
        found = {**settings.environment, **ALWAYS, **settings.environments.get(command, {})}
        if settings.workspace:
            found.pop("TF_WORKSPACE", None)  # it would win over the one that is selected
        if arguments := settings.arguments.get(command):
            name = f"TF_CLI_ARGS_{command}"
            found[name] = f"{shlex.join(arguments)} {found.get(name, '')}".strip()
            if len(found[name].encode()) > MOST_ARGUMENTS:
                raise StageFailedError(
                    f"the variables and flags of {command} are too long for the program: "
                    f"{len(found[name].encode()):,} bytes, {MOST_ARGUMENTS:,} can be passed",
                    hint="put long values into a file and name it in varFiles",
                )
        return {**found, "TF_DATA_DIR": str(self._data)}

    async def prepare(self, log: StageLog | None) -> None:
        """Makes the folder ready, and selects the workspace. Raises StageFailedError."""
        if log is not None:
            log.info("%s init", self.name)
        try:
            # Left by an earlier commit, whose backend may have been another.
            (self._data / "terraform.tfstate").unlink(missing_ok=True)
        except NotADirectoryError:
            raise StageFailedError(
                f"{self._data.name} is a file, and {self.name} needs a folder there",
                hint="remove it from the repository",
            ) from None
        arguments = own("init", "-input=false", "-no-color")
        done = await self._run("init", arguments, log, self._show_plainly)
        if done.exit_code != 0:
            raise self._fail("init", done)
        if self._settings.workspace:
            await self._select(self._settings.workspace, log)
        self._check_state()

    async def _select(self, workspace: str, log: StageLog | None) -> None:
        select = (*own("workspace", "select", "-no-color", "--"), word(workspace))
        done = await self._run("workspace", select, None)
        if done.exit_code == 0:
            return
        if "doesn't exist" not in done.errors + done.output:
            raise self._fail("workspace select", done)
        if not self._settings.creates_workspace:
            raise StageFailedError(
                f"there is no workspace {workspace!r}",
                hint="set createWorkspace: true to have it made, or make it by hand: "
                f"{self.name} workspace new {workspace}",
            )
        new = (*own("workspace", "new", "-no-color", "--"), word(workspace))
        done = await self._run("workspace", new, None)
        if done.exit_code != 0:
            raise self._fail("workspace new", done)
        if log is not None:
            log.info("Workspace %r was made", workspace)

    def _check_state(self) -> None:
        """Raises StageFailedError when the state would be lost with the files of the commit."""
        kind, config = self._read_backend()
        if kind != LOCAL:
            return
        workspace = self._settings.workspace or self.environment("init").get("TF_WORKSPACE", "")
        key = "workspace_dir" if workspace not in {"", "default"} else "path"
        if Path(config.get(key) or "").is_absolute():
            return
        raise StageFailedError(
            "the state would be kept among the files of the commit, and lost with them",
            hint=f"configure a backend; for a local one, with an absolute {key}, e.g. in the "
            "deploy target's backendConfig",
        )

    def locate_state(self) -> Path | None:
        """Returns the file of the state, None when it is elsewhere, or nobody knows.

        Only after `prepare`.
        """
        kind, config = self._read_backend()
        workspace = self._settings.workspace or "default"
        commands = ("init", "workspace", "plan", "show", "state")
        if kind != LOCAL or any("TF_WORKSPACE" in self.environment(each) for each in commands):
            return None
        if workspace == "default":
            return Path(config["path"]) if config.get("path") else None
        folder = config.get("workspace_dir")
        return Path(folder, workspace, "terraform.tfstate") if folder else None

    def _read_backend(self) -> tuple[str, Mapping[str, Any]]:
        """Returns the kind of the backend that init has chosen, and its settings."""
        try:
            known = json.loads((self._data / "terraform.tfstate").read_text())
            backend = known.get("backend") or {}
            return backend.get("type") or LOCAL, backend.get("config") or {}
        except (OSError, ValueError, AttributeError):
            return LOCAL, {}

    async def plan(
        self, file: Path, log: StageLog | None, *, lock: bool = False, refresh: bool = True
    ) -> PlannedChanges:
        """Makes a plan and keeps it in a file. Raises StageFailedError."""
        await asyncio.to_thread(file.touch, mode=0o600)
        arguments = [
            *own("plan", "-json", "-input=false", "-detailed-exitcode"),
            *own("-lock=true" if lock else "-lock=false"),
            *(() if refresh else own("-refresh=false")),
            join_option("-out=", file),
        ]
        if log is not None:
            log.info("%s plan", self.name)
        reader = self.reader()
        done = await self._run("plan", arguments, log, reader.translate)
        if done.exit_code not in {NO_CHANGES, HAS_CHANGES}:
            raise explain(f"{self.name} plan", reader.errors, exit_code=done.exit_code)
        has_changes = done.exit_code == HAS_CHANGES
        try:
            shown = await self._read_json(*own("show", "-json"), word(file))
        except OutputTooLargeError:
            # No reason to refuse a plan: it is applied from its file.
            changes = read_messages(reader.planned, self._settings.mask, is_applicable=has_changes)
        else:
            changes = read_changes(shown, self._settings.mask, is_applicable=has_changes)
        return PlannedChanges(changes=changes, file=file)

    def reader(self) -> MessageReader:
        """Returns what reads the messages of a command."""
        return MessageReader(mask=self._settings.mask)

    async def read_state(self) -> Mapping[str, Any]:
        """Returns the state as `show -json` prints it. Raises TargetError."""
        return await self._read_json(*own("show", "-json"))

    async def list_addresses(self) -> tuple[list[str], bool]:
        """Returns the addresses of the resources in the state, and whether there are more."""
        done = await self._run("state", own("state", "list"), None)
        if done.exit_code != 0:
            raise self._fail("state list", done)
        lines = done.output.split("\n")
        if done.is_cut:
            lines = lines[:-1]  # it may be a part of one
        return [make_printable_line(each) for each in lines if each], done.is_cut

    async def read_serial(self) -> tuple[str, int]:
        """Returns lineage and serial of the state; of none, an empty text and 0."""
        done = await self._run("state", own("state", "pull"), None)
        if done.exit_code != 0:
            raise self._fail("state pull", done)
        if not done.output.strip():
            return "", 0
        try:
            # Only the head is needed, and a state may be larger than what is kept of an output.
            head = json.loads(done.output) if not done.is_cut else _read_head(done.output)
            return str(head.get("lineage", "")), int(head.get("serial", 0))
        except (ValueError, AttributeError, TypeError) as error:
            raise TargetError("the state cannot be read: it is no JSON") from error

    def apply_text(self, file: Path, *, lock_timeout: timedelta) -> str:
        """Returns the shell script that applies a plan; the shell becomes the program."""
        words = [str(self.program), "apply", "-json", "-input=false"]
        words.append(f"-lock-timeout={lock_timeout // timedelta(milliseconds=1)}ms")
        return f"exec {shlex.join([*words, str(file)])}\n"

    async def _read_json(self, *arguments: Argument) -> Mapping[str, Any]:
        done = await self._run("show", arguments, None)
        if done.exit_code != 0:
            raise self._fail("show", done)
        if done.is_cut:
            raise OutputTooLargeError(f"what {self.name} show prints is too large to be read")
        try:
            found = json.loads(done.output)
        except (ValueError, RecursionError) as error:
            raise TargetError(f"{self.name} show prints no JSON") from error
        if not isinstance(found, dict):
            raise TargetError(f"{self.name} show prints no JSON object")
        return found

    async def _run(
        self,
        command: str,
        arguments: Sequence[Argument],
        log: StageLog | None,
        translate: Translate | None = None,
    ) -> CompletedCommand:
        sink = _Sink(log, translate) if translate is not None else None
        return await shell.run(
            [self.program, *arguments],
            cwd=self.directory,
            env=self.environment(command),
            inherit_env=False,
            log=StageLog(sink) if sink is not None else None,
            limit=self._limit,
            check=False,
        )

    def _show_plainly(self, line: str) -> LogText:
        return LogText(make_printable(self._settings.mask.apply(line)).rstrip())

    def _fail(self, command: str, done: CompletedCommand) -> StageFailedError:
        """Returns the failure of a command that speaks no JSON."""
        said = [line.strip(" │╷╵|") for line in (done.errors or done.output).splitlines()]
        errors = [line for line in said if line.startswith("Error: ")] or [
            line for line in said if line
        ][-1:]
        words = self._settings.mask.apply(" ".join(errors))
        text = make_printable(words[:500]) or f"exit code {done.exit_code}"
        return StageFailedError(f"{self.name} {command} failed: {text}")


class _Sink:
    """Translates the lines of a program for the log of the stage, if there is one."""

    def __init__(self, log: StageLog | None, translate: Translate) -> None:
        self._log = log
        self._translate = translate

    def append(self, severity: Severity, line: str) -> None:
        shown = self._translate(line)
        if self._log is None or not shown.text:
            return
        match shown.severity:
            case Severity.ERROR:
                self._log.error("%s", shown.text)
            case Severity.SUCCESS:
                self._log.success("%s", shown.text)
            case _:
                self._log.info("%s", shown.text)

    def set_next_index(self, index: int, at: float | None) -> None:
        """Does nothing: the lines of the stage's log are counted there."""

    async def drain(self) -> None:
        """Lets other tasks run: what these commands print is not much."""
        await asyncio.sleep(0)


def _read_head(text: str) -> Mapping[str, Any]:
    """Returns what stands in a state before its outputs and resources."""
    head, _, _ = text.partition('"outputs"')
    found = json.loads(head.rstrip().rstrip(",") + "}")
    return found if isinstance(found, dict) else {}
