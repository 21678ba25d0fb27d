# SPDX-License-Identifier: Apache-2.0
"""The document `Application`: what is deployed, when, and through which stages.

What belongs to a plugin (`spec.plugins.<name>` and each stage's `with`) is passed on unread.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar, Literal

import msgspec

from pipecd_model.config import rules
from pipecd_model.config.events import EventWatcherConfig
from pipecd_model.config.notification import ApplicationNotificationConfig
from pipecd_model.config.pipeline import PipelineConfig
from pipecd_model.config.post_sync import PostSyncConfig
from pipecd_model.config.schema import ConfigModel, Report, find_key, find_value
from pipecd_model.config.values import Duration

_LOCK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_TARGETS_BY_PLUGIN = (
    "write deployTargets: {PLUGIN: [TARGET]}, or choose them with:"
    " pipectl application update NAME --deploy-target PLUGIN=TARGET"
)
_PUBLISHED_SLIPS = {
    "plugin": "name the plugin under plugins",
    "deployTarget": _TARGETS_BY_PLUGIN,
    "deployTargets": _TARGETS_BY_PLUGIN,
}


class OnCommitConfig(ConfigModel):
    """A commit that touches the application deploys it."""

    disabled: bool = False
    """Turns it off."""
    paths: tuple[str, ...] = ()
    """Further files that belong to the application, beside its own folder."""
    ignores: tuple[str, ...] = ()
    """Files that do not count, wherever they are."""

    def check(self, report: Report) -> None:
        rules.path_patterns(report, "paths", self.paths)
        rules.path_patterns(report, "ignores", self.ignores)


class OnCommandConfig(ConfigModel):
    """Somebody asked for it."""

    disabled: bool = False
    """Turns it off."""


class OnOutOfSyncConfig(ConfigModel):
    """What runs differs from git."""

    disabled: bool = True
    """Off unless this is `false`."""
    min_window: Duration = Duration(minutes=5)
    """How long the last deployment must have been over."""

    def check(self, report: Report) -> None:
        rules.not_negative(report, "minWindow", self.min_window)


class OnChainConfig(ConfigModel):
    """An application before this one in a chain was deployed."""

    disabled: bool = True
    """Off unless this is `false`."""


class TriggerConfig(ConfigModel):
    """What starts a deployment."""

    on_commit: OnCommitConfig = msgspec.field(default_factory=OnCommitConfig)
    on_command: OnCommandConfig = msgspec.field(default_factory=OnCommandConfig)
    on_out_of_sync: OnOutOfSyncConfig = msgspec.field(default_factory=OnOutOfSyncConfig)
    on_chain: OnChainConfig = msgspec.field(default_factory=OnChainConfig)


class PlannerConfig(ConfigModel):
    """How a deployment is planned."""

    always_use_pipeline: bool = False
    """Never choose a quick sync by itself when there is a pipeline."""
    auto_rollback: bool = True
    """Go back to what ran before when a deployment fails or is cancelled."""


class QueueConfig(ConfigModel):
    """What happens when a deployment is due while others are not completed."""

    mode: Literal["queue", "supersede", "reject"] = "queue"
    """`queue`: it waits for its turn. `supersede`: it replaces what waits, and interrupts what runs
    in WAIT, WAIT_APPROVAL or ANALYSIS, else before the next stage. `reject`: no deployment is made
    until the open one is completed."""
    locks: tuple[str, ...] = ()
    """Names; of all applications of one piped that name the same lock, one is deployed at a
    time."""

    def check(self, report: Report) -> None:
        for index, name in enumerate(self.locks):
            if not _LOCK_NAME.fullmatch(name):
                report.fault(
                    "locks",
                    index,
                    message=f"not the name of a lock: {name!r}",
                    hint="letters, digits, . _ - and /, at most 100 characters",
                )
            elif name in self.locks[:index]:
                report.fault("locks", index, message=f"the lock {name!r} is named twice")


class CommitMatcherConfig(ConfigModel):
    """Regular expressions that choose the strategy by the commit's message."""

    pipeline: str = ""
    """Messages that ask for the pipeline; tried first."""
    quick_sync: str = ""
    """Messages that ask for a quick sync."""

    def check(self, report: Report) -> None:
        rules.regex(report, "pipeline", self.pipeline)
        rules.regex(report, "quickSync", self.quick_sync)


class EncryptionConfig(ConfigModel):
    """Secrets that are kept in git in closed form."""

    encrypted_secrets: dict[str, str] = msgspec.field(default_factory=dict)
    """A name, and what `pipectl encrypt` printed."""
    decryption_targets: tuple[str, ...] = ()
    """Files that name them. A stage may name them as well, so there may be none."""

    def check(self, report: Report) -> None:
        for name, value in self.encrypted_secrets.items():
            if not name or not value:
                report.fault(
                    "encryptedSecrets", name, message=f"the encrypted secret {name!r} is empty"
                )
        rules.relative_paths(report, "decryptionTargets", self.decryption_targets)


class AttachmentConfig(ConfigModel):
    """Files whose content is put into other files."""

    sources: dict[str, str] = msgspec.field(default_factory=dict)
    """A name, and the file it stands for."""
    targets: tuple[str, ...] = ()
    """Files that name them, as `{{ .attachment.<name> }}`."""

    def check(self, report: Report) -> None:
        for name, value in self.sources.items():
            if not name or not value:
                report.fault("sources", name, message=f"the attachment {name!r} names no file")
        if not self.targets and not report.is_broken("targets"):
            report.fault("targets", message="missing", hint="which files name the attachments?")
        rules.relative_paths(report, "targets", self.targets)


class DriftDetectionConfig(ConfigModel):
    """What may differ between git and what runs."""

    ignore_fields: tuple[str, ...] = ()
    """Written as `apiVersion:kind:namespace:name#fieldPath`."""

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
    }
    elsewhere: ClassVar = {
        "triggerPaths": "trigger.onCommit.paths",
        "encryptedSecrets": "encryption.encryptedSecrets",
    }
    derived: ClassVar = frozenset({"kind"})

    kind: str = "Application"
    """The document's kind; older files say e.g. `KubernetesApp`."""
    name: str = ""
    """Needed to register the application from its file."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Free attributes, to find it by and to choose whom to tell."""
    description: str = ""
    """Notes for people, in Markdown."""
    trigger: TriggerConfig = msgspec.field(default_factory=TriggerConfig)
    planner: PlannerConfig = msgspec.field(default_factory=PlannerConfig)
    queue: QueueConfig = msgspec.field(default_factory=QueueConfig)
    commit_matcher: CommitMatcherConfig = msgspec.field(default_factory=CommitMatcherConfig)
    pipeline: PipelineConfig = msgspec.field(default_factory=PipelineConfig)
    plugins: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Each plugin's own section, passed on unread."""
    deploy_targets: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """By plugin, the names of the deploy targets of the piped file that it deploys to. They stand
    in for those of the same plugin that the application was registered with."""
    timeout: Duration = Duration(hours=6)
    """How long a whole deployment may take."""
    on_failure: Literal["rollback", "wait"] = "rollback"
    """What happens when a stage fails. `rollback`: the deployment is rolled back at once. `wait`:
    it stays open for a person, who retries the stage, rolls back or cancels."""
    on_failure_timeout: Duration = Duration(hours=1)
    """How long a person is waited for; then the deployment is rolled back."""
    encryption: EncryptionConfig | None = None
    attachment: AttachmentConfig | None = None
    notification: ApplicationNotificationConfig | None = None
    post_sync: PostSyncConfig | None = None
    event_watcher: tuple[EventWatcherConfig, ...] = ()
    drift_detection: DriftDetectionConfig | None = None

    @classmethod
    def prepare(cls, raw: dict[str, Any], report: Report) -> dict[str, Any]:
        raw = _drop_published_slips(raw, report)
        raw = _fill_plugin_sections(raw)
        raw = _move_trigger_paths(raw, report)
        return _move_top_level_secrets(raw, report)

    def check(self, report: Report) -> None:
        rules.positive(report, "timeout", self.timeout)
        rules.positive(report, "onFailureTimeout", self.on_failure_timeout)
        unread = report.is_broken("pipeline") or report.is_broken("plugins")
        if not unread and not (self.pipeline.stages or self.plugins or self.deploy_targets):
            report.warn(message="nothing to deploy", hint="give pipeline.stages or plugins")
        self._check_targets(report)
        if self.encryption is not None and not unread:
            self._check_that_secrets_are_used(self.encryption, report)

    def _check_targets(self, report: Report) -> None:
        if report.is_broken("deployTargets"):
            return
        for plugin, names in self.deploy_targets.items():
            path = ("deployTargets", plugin)
            if not names:
                hint = "name its targets, or remove the key to have those it was registered with"
                report.fault(*path, message="names no deploy target", hint=hint)
            for index, name in enumerate(names):
                if not name.strip():
                    report.fault(*path, index, message="a deploy target has a name")
                elif name in names[:index]:
                    report.fault(*path, index, message=f"the target {name!r} is named twice")

    def _check_that_secrets_are_used(self, encryption: EncryptionConfig, report: Report) -> None:
        if encryption.decryption_targets or report.is_broken("encryption"):
            return
        options = json.dumps([stage.with_ for stage in self.pipeline.stages])
        for name in encryption.encrypted_secrets:
            if "encryptedSecrets" not in options or name not in options:
                report.warn(
                    "encryption",
                    "encryptedSecrets",
                    name,
                    message=f"the secret {name!r} is used by no target and no stage",
                    hint="list the files that name it under decryptionTargets",
                )


def _drop_published_slips(raw: dict[str, Any], report: Report) -> dict[str, Any]:
    """Returns `raw` without keys that published pages show and no program reads; warns of each."""
    for slip, hint in _PUBLISHED_SLIPS.items():
        key = find_key(raw, slip)
        if key is not None and not (slip == "deployTargets" and isinstance(raw[key], dict)):
            report.warn(key, message="nobody reads it", hint=hint)
            raw = {name: value for name, value in raw.items() if name != key}
    return raw


def _fill_plugin_sections(raw: dict[str, Any]) -> dict[str, Any]:
    """A plugin that is only named (`kubernetes:`) has an empty section."""
    key = find_key(raw, "plugins")
    if key is None or not isinstance(raw[key], dict):
        return raw
    sections = {name: {} if body is None else body for name, body in raw[key].items()}
    return {**raw, key: sections}


def _move_trigger_paths(raw: dict[str, Any], report: Report) -> dict[str, Any]:
    """`triggerPaths` is what `trigger.onCommit.paths` was called before."""
    key = find_key(raw, "triggerPaths")
    if key is None:
        return raw
    report.warn(key, message="old spelling", hint="use trigger.onCommit.paths")
    rest = {name: value for name, value in raw.items() if name != key}
    return _put_nested(rest, ("trigger", "onCommit", "paths"), raw[key])


def _move_top_level_secrets(raw: dict[str, Any], report: Report) -> dict[str, Any]:
    """The script-run document keeps `encryptedSecrets` directly under `spec`."""
    key = find_key(raw, "encryptedSecrets")
    if key is None:
        return raw
    rest = {name: value for name, value in raw.items() if name != key}
    section = find_value(rest, "encryption")
    if isinstance(section, dict) and find_key(section, "encryptedSecrets") is not None:
        report.fault(
            key,
            message="encryptedSecrets and encryption.encryptedSecrets are the same setting",
            hint="use only encryption.encryptedSecrets",
        )
        return rest
    return _put_nested(rest, ("encryption", "encryptedSecrets"), raw[key])


def _put_nested(raw: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Copy `raw` with a value at a path, unless something is there already."""
    key = find_key(raw, path[0]) or path[0]
    if len(path) == 1:
        return raw if raw.get(key) is not None else {**raw, key: value}
    inner = raw.get(key)
    if inner is not None and not isinstance(inner, dict):
        return raw  # wrong anyway, and said so when it is decoded
    return {**raw, key: _put_nested(inner or {}, path[1:], value)}
