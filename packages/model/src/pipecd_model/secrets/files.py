# SPDX-License-Identifier: Apache-2.0
"""What `spec.encryption` and `spec.attachment` do to an application's files.

Works in memory: files are asked for by path, and what they become is given back for the caller to
write. So a template that fails leaves every file as it was. Secrets come first, then attachments;
each step sees both, as they are then, so that a file with secrets in it can be attached to another.
A file that both steps name is rendered once, in between: what a secret brings in is never read as
a template.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from pipecd_model.config.application import ApplicationConfig, AttachmentConfig, EncryptionConfig
from pipecd_model.config.fault import ConfigFaultsError, Fault
from pipecd_model.config.locate import Positions
from pipecd_model.config.path import Path, format_path
from pipecd_model.errors import ConfigError
from pipecd_model.secrets.cipher import as_bytes, as_text
from pipecd_model.secrets.mask import Masker
from pipecd_model.templates import render

Read = Callable[[str], bytes | None]
"""Gives the content of a file, or None if there is none. Links that lead out are its business."""

OpenSecret = Callable[[str], str]
"""Opens a closed secret; raises ConfigError."""

SECONDS: Final = 5.0
"""Processor time for all templates of one application: each has a limit, their number has none."""

_SECRETS: Final = ("spec", "encryption", "encryptedSecrets")
_SECRET_TARGETS: Final = ("spec", "encryption", "decryptionTargets")
_SOURCES: Final = ("spec", "attachment", "sources")
_TARGETS: Final = ("spec", "attachment", "targets")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedFiles:
    """What an application's files become. Never shows what is in them."""

    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Only those that are rendered, by their paths from where reading starts."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The secrets that were opened, by name: to be masked in whatever comes of these files."""


def prepare(
    application: ApplicationConfig,
    *,
    file: str,
    read: Read,
    open_secret: OpenSecret | None,
    folder: str = "",
    text: str = "",
) -> PreparedFiles:
    """Render the files that an application names; raises ConfigFaultsError with all that is wrong.

    `file` is the application file as its author knows it, `text` what is in it, for the lines of
    faults. Paths in it start at `folder` and cannot leave what `read` starts at: with the folder's
    path in the repository that is the repository, with no folder it is the application's own.
    Without `open_secret`, files that need secrets are refused.
    """
    work = _Work(file=file, text=text, folder=folder, read=read)
    encryption = application.encryption or EncryptionConfig()
    attachment = application.attachment or AttachmentConfig()
    work.resolve(encryption, attachment)
    if work.secret_targets or work.targets:
        work.open_secrets(encryption, open_secret)
    work.give_up_on_faults()
    both = work.secret_targets.keys() & work.targets.keys()
    work.step(path for path in work.secret_targets if path not in both)
    work.step(path for path in work.targets if path in both)
    work.step(path for path in work.targets if path not in both)
    work.give_up_on_faults()
    return PreparedFiles(files=work.made, secrets=work.secrets)


class _Work:
    """One application on its way through the steps."""

    def __init__(self, *, file: str, text: str, folder: str, read: Read) -> None:
        self._file = file
        self._text = text
        self._folder = folder
        self._read = cache(read)  # the files do not change under us
        self._faults: list[Fault] = []
        self._places: Positions | None = None
        self._seconds = 0.0
        self._sources: dict[str, str] = {}
        self.secrets: dict[str, str] = {}
        self.secret_targets: dict[str, None] = {}
        self.targets: dict[str, None] = {}
        self.made: dict[str, bytes] = {}

    def resolve(self, encryption: EncryptionConfig, attachment: AttachmentConfig) -> None:
        """Find all files that are named; a step without secrets or sources has nothing to do."""
        for name, path in attachment.sources.items():
            self._sources[name] = self._source((*_SOURCES, name), name, path)
        if encryption.encrypted_secrets:
            for index, path in enumerate(encryption.decryption_targets):
                found = self._target((*_SECRET_TARGETS, index), "decryption target", path)
                self.secret_targets |= dict.fromkeys(found)
        if attachment.sources:
            for index, path in enumerate(attachment.targets):
                found = self._target((*_TARGETS, index), "attachment target", path)
                self.targets |= dict.fromkeys(found)

    def open_secrets(self, encryption: EncryptionConfig, open_secret: OpenSecret | None) -> None:
        """Opens every secret; adds a fault for each that cannot be opened."""
        if open_secret is None:
            if self.secret_targets:
                self._fault(
                    _SECRETS,
                    "this piped cannot open secrets",
                    "set secretManagement in its configuration",
                )
            return
        for name, closed in encryption.encrypted_secrets.items():
            try:
                self.secrets[name] = open_secret(closed)
            except ConfigError as error:
                message = f"the secret {name!r} cannot be opened: {error}"
                self._fault((*_SECRETS, name), message, error.hint)

    def step(self, targets: Iterable[str]) -> None:
        """Render files with the secrets and with the attachments as they are by now."""
        waiting = list(targets)
        if not waiting:
            return
        attachments = {name: as_text(self._content(path)) for name, path in self._sources.items()}
        data = {
            "encryptedSecrets": self.secrets,
            "attachment": attachments,
            "attachments": attachments,  # what people write as well
        }
        made: dict[str, bytes] = {}
        for path in waiting:
            if self._seconds > SECONDS:
                message = f"the templates take longer than {SECONDS:g}s together"
                self._faults.append(Fault(file=path, message=message, hint=_LESS))
                return
            began = time.thread_time()
            try:
                template = self._content(path).decode()
                made[path] = as_bytes(render(template, data, name=path))
            except UnicodeDecodeError as error:
                message = f"not UTF-8 at byte {error.start}"
                self._faults.append(Fault(file=path, message=message, hint=_NO_TEXT))
            except ConfigFaultsError as error:
                self._faults += error.faults
            finally:
                self._seconds += time.thread_time() - began
        self.made |= made

    def give_up_on_faults(self) -> None:
        """Raises ConfigFaultsError with all faults, if any; masks secret values in messages."""
        if not self._faults:
            return
        masker = Masker(self.secrets.values())
        raise ConfigFaultsError(
            Fault(
                file=each.file,
                line=each.line,
                column=each.column,
                path=each.path,
                message=masker.line(each.message),
                hint=masker.line(each.hint),
            )
            for each in self._faults
        )

    def _content(self, path: str) -> bytes:
        return self.made[path] if path in self.made else self._read(path) or b""

    def _source(self, at: Path, name: str, path: str) -> str:
        found = self._inside(at, path)
        if found is not None and self._read(found) is None:
            self._fault(at, f"the attachment {name!r} is not there: {path!r}", _WHERE)
        return found or ""

    def _target(self, at: Path, kind: str, path: str) -> list[str]:
        found = self._inside(at, path)
        if found is not None and self._read(found) is None:
            self._fault(at, f"the {kind} {path!r} is not there", _WHERE)
            return []
        return [found] if found is not None else []

    def _inside(self, at: Path, path: str) -> str | None:
        clean = posixpath.normpath(posixpath.join(self._folder, path))
        if path.startswith("/") or clean in {"..", "."} or clean.startswith("../") or "\0" in path:
            where = "repository" if self._folder else "application's folder"
            self._fault(at, f"the path {path!r} leads out of the {where}", _WHERE)
            return None
        return clean

    def _fault(self, at: Path, message: str, hint: str) -> None:
        line, column = self._place(at)
        self._faults.append(
            Fault(
                file=self._file,
                line=line,
                column=column,
                path=format_path(at),
                message=message,
                hint=hint,
            )
        )

    def _place(self, at: Path) -> tuple[int, int]:
        if not self._text:
            return (0, 0)
        if self._places is None:
            self._places = Positions(self._text)
        places = self._places
        # The script-run document keeps the secrets directly under spec.
        no_section = places.key(at[:2]) == places.key(at[:1])
        return places.value((at[0], *at[2:]) if no_section else at)


_WHERE: Final = "paths start at the application's folder"
_LESS: Final = "name fewer files, or let them compute less"
_NO_TEXT: Final = "only a text can be a template; attach it to one with b64enc"
