# SPDX-License-Identifier: Apache-2.0
"""The document `Application`: what is deployed, when, and through which stages.

What belongs to a plugin (`spec.plugins.<name>` and each stage's `with`) is passed on unread.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, ClassVar, Literal

import msgspec

from pipecd_model import paths
from pipecd_model.config.notification import ApplicationNotificationConfig
from pipecd_model.config.pipeline import PipelineConfig
from pipecd_model.config.schema import ConfigModel, Report
from pipecd_model.config.values import Duration

_PLATFORMS = ("KUBERNETES", "TERRAFORM", "LAMBDA", "CLOUDRUN", "ECS")


class OnCommitConfig(ConfigModel):
    """A commit that touches the application deploys it."""

    disabled: bool = False
    paths: tuple[str, ...] = ()
    """Further files that belong to the application, beside its own folder."""
    ignores: tuple[str, ...] = ()
    """Files that do not count, wherever they are."""

    def check(self, report: Report) -> None:
        check_patterns(report, "paths", self.paths)
        check_patterns(report, "ignores", self.ignores)


class OnCommandConfig(ConfigModel):
    """Somebody asked for it."""

    disabled: bool = False


class OnOutOfSyncConfig(ConfigModel):
    """What runs differs from git."""

    disabled: bool = True
    min_window: Duration = Duration(minutes=5)
    """How long the last deployment must have been over."""


class OnChainConfig(ConfigModel):
    """An application before this one in a chain was deployed."""

    disabled: bool = True


class TriggerConfig(ConfigModel):
    """What starts a deployment."""

    on_commit: OnCommitConfig = msgspec.field(default_factory=OnCommitConfig)
    on_command: OnCommandConfig = msgspec.field(default_factory=OnCommandConfig)
    on_out_of_sync: OnOutOfSyncConfig = msgspec.field(default_factory=OnOutOfSyncConfig)
    on_chain: OnChainConfig = msgspec.field(default_factory=OnChainConfig)


class PlannerConfig(ConfigModel):
    """How a deployment is planned."""

    always_use_pipeline: bool = False
    auto_rollback: bool = True


class CommitMatcherConfig(ConfigModel):
    """Regular expressions that choose the strategy by the commit's message."""

    pipeline: str = ""
    quick_sync: str = ""

    def check(self, report: Report) -> None:
        for key, pattern in (("pipeline", self.pipeline), ("quickSync", self.quick_sync)):
            check_regex(report, key, pattern)


class EncryptionConfig(ConfigModel):
    """Secrets that are kept in git in closed form."""

    encrypted_secrets: dict[str, str] = msgspec.field(default_factory=dict)
    decryption_targets: tuple[str, ...] = ()
    """Files that name them. A stage may name them as well, so there may be none."""

    def check(self, report: Report) -> None:
        for name, value in self.encrypted_secrets.items():
            if not name or not value:
                report.fault(
                    "encryptedSecrets",
                    name,
                    message=f"the encrypted secret {name!r} is empty",
                    hint="closed text comes from: pipectl encrypt",
                )
        check_paths(report, "decryptionTargets", self.decryption_targets)


class AttachmentConfig(ConfigModel):
    """Files whose content is put into other files."""

    sources: dict[str, str] = msgspec.field(default_factory=dict)
    targets: tuple[str, ...] = ()

    def check(self, report: Report) -> None:
        for name, value in self.sources.items():
            if not name or not value:
                report.fault("sources", name, message=f"the attachment {name!r} names no file")
        if not self.targets and not report.broken("targets"):
            report.fault("targets", message="missing", hint="which files name the attachments?")
        check_paths(report, "targets", self.targets)


class ChainApplicationConfig(ConfigModel):
    """Which applications follow."""

    name: str = ""
    kind: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)

    def check(self, report: Report) -> None:
        if not (self.name or self.kind or self.labels):
            report.fault(message="needs name, kind or labels")
        if self.kind and self.kind not in _PLATFORMS:
            report.fault(
                "kind",
                message=f"unknown value {self.kind!r}",
                hint=f"one of {', '.join(_PLATFORMS)}",
            )


class ChainConfig(ConfigModel):
    """The applications that are deployed after this one, in order."""

    applications: tuple[ChainApplicationConfig, ...] = ()

    def check(self, report: Report) -> None:
        if not self.applications and not report.broken("applications"):
            report.fault("applications", message="needs at least one application")


class PostSyncConfig(ConfigModel):
    """What follows a successful deployment."""

    chain: ChainConfig | None = None


class ReplacementConfig(ConfigModel):
    """A value in a file that an event replaces."""

    file: str
    yaml_field: str = ""
    json_field: str = ""
    hcl_field: str = msgspec.field(name="HCLField", default="")
    regex: str = ""

    def check(self, report: Report) -> None:
        for key, value in (("jsonField", self.json_field), ("HCLField", self.hcl_field)):
            if value:
                report.fault(key, message="not supported", hint="use yamlField or regex")
                return
        if bool(self.yaml_field) == bool(self.regex):
            report.fault(
                "regex" if self.regex else "yamlField",
                message="set exactly one of yamlField and regex",
            )
        elif self.yaml_field and not self.yaml_field.startswith("$"):
            report.fault(
                "yamlField",
                message=f"not a path: {self.yaml_field!r}",
                hint=f"must start with $, e.g. $.{self.yaml_field}",
            )
        elif self.regex and check_regex(report, "regex", self.regex) and not _groups(self.regex):
            report.fault("regex", message="has no group", hint="put ( ) around what is replaced")


class GitUpdateConfig(ConfigModel):
    """A commit that writes an event's value into files."""

    commit_message: str = ""
    make_pull_request: bool = False
    replacements: tuple[ReplacementConfig, ...] = ()


class EventMatcherConfig(ConfigModel):
    """Which event is meant."""

    name: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class EventHandlerConfig(ConfigModel):
    """What is done with it."""

    type: Literal["GIT_UPDATE"]
    config: GitUpdateConfig = msgspec.field(default_factory=GitUpdateConfig)


class EventWatcherConfig(ConfigModel):
    """An event that changes this application's files."""

    matcher: EventMatcherConfig
    handler: EventHandlerConfig


class DriftDetectionConfig(ConfigModel):
    """What may differ between git and what runs."""

    ignore_fields: tuple[str, ...] = ()

    def check(self, report: Report) -> None:
        for index, name in enumerate(self.ignore_fields):
            if name.count("#") != 1:
                report.fault(
                    "ignoreFields",
                    index,
                    message=f"not a field: {name!r}",
                    hint="written as apiVersion:kind:namespace:name#fieldPath",
                )


class ApplicationConfig(ConfigModel):
    """An application: what is deployed, when, and through which stages."""

    moved: ClassVar = {
        "input": "move it to plugins.<name>.input",
        "quickSync": "move it to plugins.<name>.quickSync",
        "plugin": "name the plugin under plugins",
        "deployTarget": "deploy targets are chosen when the application is registered",
        "deployTargets": "deploy targets are chosen when the application is registered",
    }
    derived: ClassVar = frozenset({"kind"})

    kind: str = "Application"
    """The document's kind; older files say e.g. `KubernetesApp`."""
    name: str = ""
    """Needed to register the application from its file."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    description: str = ""
    trigger: TriggerConfig = msgspec.field(default_factory=TriggerConfig)
    planner: PlannerConfig = msgspec.field(default_factory=PlannerConfig)
    commit_matcher: CommitMatcherConfig = msgspec.field(default_factory=CommitMatcherConfig)
    pipeline: PipelineConfig = msgspec.field(default_factory=PipelineConfig)
    plugins: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Each plugin's own section, passed on unread."""
    timeout: Duration = Duration(hours=6)
    """How long a whole deployment may take."""
    encryption: EncryptionConfig | None = None
    attachment: AttachmentConfig | None = None
    notification: ApplicationNotificationConfig | None = None
    post_sync: PostSyncConfig | None = None
    event_watcher: tuple[EventWatcherConfig, ...] = ()
    drift_detection: DriftDetectionConfig | None = None

    @classmethod
    def prepare(cls, raw: dict[str, Any], report: Report) -> dict[str, Any]:
        raw = _with_plugin_sections(raw)
        raw = _with_trigger_paths(raw, report)
        return _with_top_level_secrets(raw, report)

    def check(self, report: Report) -> None:
        positive(report, "timeout", self.timeout)


def _with_plugin_sections(raw: dict[str, Any]) -> dict[str, Any]:
    """A plugin that is only named (`kubernetes:`) has an empty section."""
    key = spelling(raw, "plugins")
    if key is None or not isinstance(raw[key], dict):
        return raw
    sections = {name: {} if body is None else body for name, body in raw[key].items()}
    return {**raw, key: sections}


def _with_trigger_paths(raw: dict[str, Any], report: Report) -> dict[str, Any]:
    """`triggerPaths` is what `trigger.onCommit.paths` was called before."""
    key = spelling(raw, "triggerPaths")
    if key is None:
        return raw
    report.warn(key, message="old spelling", hint="use trigger.onCommit.paths")
    rest = {name: value for name, value in raw.items() if name != key}
    return _nested(rest, ("trigger", "onCommit", "paths"), raw[key])


def _with_top_level_secrets(raw: dict[str, Any], report: Report) -> dict[str, Any]:
    """The script-run document keeps `encryptedSecrets` directly under `spec`."""
    key = spelling(raw, "encryptedSecrets")
    if key is None:
        return raw
    rest = {name: value for name, value in raw.items() if name != key}
    section = rest.get(spelling(rest, "encryption") or "")
    if isinstance(section, dict) and spelling(section, "encryptedSecrets") is not None:
        report.fault(
            key,
            message="encryptedSecrets and encryption.encryptedSecrets are the same setting",
            hint="use only encryption.encryptedSecrets",
        )
        return rest
    return _nested(rest, ("encryption", "encryptedSecrets"), raw[key])


def _nested(raw: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Copy `raw` with a value at a path, unless something is there already."""
    key = spelling(raw, path[0]) or path[0]
    if len(path) == 1:
        return raw if raw.get(key) is not None else {**raw, key: value}
    inner = raw.get(key)
    if inner is not None and not isinstance(inner, dict):
        return raw  # wrong anyway, and said so when it is decoded
    return {**raw, key: _nested(inner or {}, path[1:], value)}


def spelling(raw: dict[str, Any], key: str) -> str | None:
    """Find a key whatever its case."""
    if key in raw:
        return key
    return next((written for written in raw if written.lower() == key.lower()), None)


def positive(report: Report, key: str, value: timedelta) -> None:
    """Refuse a time in which nothing can happen."""
    if value <= timedelta():
        report.fault(key, message=f"must be positive: {value}")


def check_patterns(report: Report, key: str, patterns: tuple[str, ...]) -> None:
    """Refuse path patterns that cannot be used."""
    for index, pattern in enumerate(patterns):
        try:
            paths.check(pattern)
        except paths.BadPatternError as error:
            report.fault(key, index, message=str(error))


def check_paths(report: Report, key: str, names: tuple[str, ...]) -> None:
    """Refuse files outside of any repository; the rest is known only once there is a checkout."""
    for index, name in enumerate(names):
        if name.startswith("/"):
            report.fault(
                key,
                index,
                message=f"not inside the repository: {name!r}",
                hint="write it relative to the application's folder",
            )


def check_regex(report: Report, key: str, pattern: str) -> bool:
    """Refuse what is no regular expression here or for others who read the same file."""
    try:
        re.compile(pattern)
    except re.error as error:
        report.fault(key, message=f"not a regular expression: {pattern!r}", hint=str(error))
        return False
    if _NOT_PORTABLE.search(pattern):
        report.fault(
            key,
            message=f"not a portable regular expression: {pattern!r}",
            hint="look-around and back-references are not supported",
        )
        return False
    return True


def _groups(pattern: str) -> int:
    return re.compile(pattern).groups


_NOT_PORTABLE = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?:<?[=!]|P=|>|\()|\\[1-9])")
