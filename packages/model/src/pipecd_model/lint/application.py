# SPDX-License-Identifier: Apache-2.0
"""An application file, judged: its stages, its plugins, its secrets, the files it names."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from pipecd_model.config import rules
from pipecd_model.config.application import ApplicationConfig
from pipecd_model.config.document import Document
from pipecd_model.config.fault import ConfigFaultsError, Fault
from pipecd_model.config.schema import find_list, find_mapping, find_value
from pipecd_model.lint import stages
from pipecd_model.lint.context import FileView, LintContext, Notes
from pipecd_model.lint.schemas import judge
from pipecd_model.secrets.placeholder import problems, texts

_SHORTEST_SECRET = 2 + 128 + 16  # length, key closed by the smallest RSA key, authentication tag
_PLACEHOLDER = "opened"  # stands for a secret's value: lint opens none


def check(document: Document, notes: Notes, context: LintContext) -> None:
    """Say what is wrong with the body beyond what loading it says."""
    spec = document.application_spec()
    if not isinstance(spec, dict):
        return
    if not find_value(spec, "name"):
        hint = "write spec.name so that it can be registered"
        notes.warn(("spec",), "the application has no name", hint, on_key=True)
    stages.check(spec, notes, context)
    _check_plugins(spec, notes, context)
    _check_secrets(spec, notes, context)
    _check_files(spec, notes, context.files)


def _check_plugins(spec: dict[str, Any], notes: Notes, context: LintContext) -> None:
    sections = find_mapping(spec, "plugins")
    known = [each.name for each in context.piped.plugins] if context.piped else None
    for name, section in sections.items():
        plugin = context.plugins.get(name)
        if plugin is not None and plugin.application_config is not None:
            path = ("spec", "plugins", name)
            notes.add(judge(plugin.application_config, section, path))
        if known is not None and name not in known:
            hint = rules.nearest(name, known) or f"it runs {', '.join(known) or 'none'}"
            path = ("spec", "plugins", name)
            notes.fault(path, f"the piped does not run a plugin {name!r}", hint, on_key=True)
        elif known is None and plugin is None:
            hint = rules.nearest(name, context.plugins)
            if hint:
                path = ("spec", "plugins", name)
                notes.warn(path, f"no well-known plugin is called {name!r}", hint, on_key=True)


def _check_secrets(spec: dict[str, Any], notes: Notes, context: LintContext) -> None:
    section = find_mapping(spec, "encryption")
    secrets = find_mapping(section, "encryptedSecrets")
    path: tuple[str | int, ...] = ("spec", "encryption", "encryptedSecrets")
    if not secrets:
        secrets, path = find_mapping(spec, "encryptedSecrets"), ("spec", "encryptedSecrets")
    if secrets and context.piped is not None and context.piped.secret_management is None:
        message = "the piped has no secretManagement, so no secret can be opened"
        notes.fault(path, message, "add secretManagement to the piped file", on_key=True)
    for index, stage in enumerate(find_list(find_mapping(spec, "pipeline"), "stages")):
        for place, text in texts(stage, ("spec", "pipeline", "stages", index)):
            for problem in problems(text, secrets):
                notes.fault(place, str(problem), problem.hint)
    for name, value in secrets.items():
        if isinstance(value, str) and value and not _looks_closed(value):
            hint = "write what pipectl encrypt prints"
            notes.warn((*path, name), f"the secret {name!r} is not in closed form", hint)


def _looks_closed(value: str) -> bool:
    try:
        data = base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(data) >= _SHORTEST_SECRET


def _check_files(spec: dict[str, Any], notes: Notes, files: FileView | None) -> None:
    if files is None:
        return
    attachment = find_mapping(spec, "attachment")
    named: list[tuple[tuple[str | int, ...], Any, str]] = []
    targets = find_list(find_mapping(spec, "encryption"), "decryptionTargets")
    for index, name in enumerate(targets):
        path = ("spec", "encryption", "decryptionTargets", index)
        named.append((path, name, "the decryption target"))
    for index, name in enumerate(find_list(attachment, "targets")):
        named.append((("spec", "attachment", "targets", index), name, "the attachment target"))
    for key, name in find_mapping(attachment, "sources").items():
        named.append((("spec", "attachment", "sources", key), name, f"the attachment {key!r},"))
    for place, name, what in named:
        if not isinstance(name, str) or not name or name.startswith("/"):
            continue  # reported when it is loaded
        if not files.is_inside(name):
            notes.fault(place, f"{what} {name!r} is outside of the repository", "copy it inside")
        elif not files.exists(name):
            hint = "paths start at the application's folder"
            notes.fault(place, f"{what} {name!r} does not exist", hint)


def check_targets(config: ApplicationConfig, file: str, files: FileView | None) -> list[Fault]:
    """Try the files that name secrets and attachments as templates."""
    if files is None:
        return []
    secrets = config.encryption.encrypted_secrets if config.encryption else {}
    sources = config.attachment.sources if config.attachment else {}
    targets = [
        *(config.encryption.decryption_targets if config.encryption else ()),
        *(config.attachment.targets if config.attachment else ()),
    ]
    attached = dict.fromkeys(sources, _PLACEHOLDER)
    data = {
        "encryptedSecrets": dict.fromkeys(secrets, _PLACEHOLDER),
        "attachment": attached,
        "attachments": attached,
    }
    folder = file.rpartition("/")[0]
    faults: list[Fault] = []
    for target in dict.fromkeys(targets):
        text = files.read(target)
        if text is None or "{{" not in text:
            continue
        from pipecd_model.templates import render  # noqa: PLC0415 - most files need no engine

        try:
            render(text, data, name=f"{folder}/{target}" if folder else target)
        except ConfigFaultsError as error:
            faults += error.faults
    return faults
