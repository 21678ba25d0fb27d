# SPDX-License-Identifier: Apache-2.0
"""The document `Piped`: who an agent is, whom it serves, and which plugins it runs.

What belongs to a plugin (its `config` and its deploy targets' `config`) is passed on unread.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from pipecd_model.config import rules
from pipecd_model.config.notification import NotificationsConfig
from pipecd_model.config.schema import ConfigModel, Report, find_key
from pipecd_model.config.values import Base64Secret, Duration
from pipecd_model.errors import ConfigError
from pipecd_model.gitnames import BranchName, RemoteAddress
from pipecd_model.oci import parse_reference

_PLUGIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)
_SCHEMES = ("file", "http", "https", "oci", "package")
_PORTS = range(1, 65536)
_MOST_REGISTERED = 1000  # the control plane takes no more of one agent
_MIGRATE = "pipectl migrate piped-config does it"


class GitConfig(ConfigModel):
    """How git is used and who signs the commits."""

    username: str = "piped"
    """Who makes commits, and who signs in with `password`."""
    email: str = "pipecd.dev@gmail.com"
    """The address in commits."""
    ssh_config_file_path: str = ""
    """Where the settings for ssh are added; `~/.ssh/config` if empty."""
    host: str = "github.com"
    """The host that the key is for."""
    host_name: str = ""
    """The host's address, when it is not `host` itself."""
    ssh_key_file: str = ""
    """The file with the private key."""
    ssh_key_data: Base64Secret | None = None
    """Base64 of the private key."""
    password: Base64Secret | None = None
    """Base64 of the password or token for HTTPS remotes; needs a user name of its own."""

    @classmethod
    def prepare(cls, raw: dict[str, Any], report: Report) -> dict[str, Any]:
        if find_key(raw, "password") is not None and find_key(raw, "username") is None:
            report.fault("username", message="missing", hint="a password needs its user name")
        return raw

    def check(self, report: Report) -> None:
        if self.ssh_key_file and self.ssh_key_data:
            report.fault("sshKeyData", message="sshKeyFile and sshKeyData exclude each other")
        for key, value in (("host", self.host), ("hostName", self.host_name)):
            # They become lines of a configuration of ssh.
            if not value.isprintable():
                report.fault(key, message=f"not a host: {value!r}", hint="e.g. github.com")
        if self.password and (self.ssh_key_file or self.ssh_key_data):
            report.fault("password", message="password and an ssh key exclude each other")


class RepositoryConfig(ConfigModel):
    """A git repository that is watched."""

    repo_id: str = msgspec.field(name="repoId")
    """The handle that applications use."""
    remote: str
    """Where it is cloned from."""
    branch: str
    """What is deployed."""

    def check(self, report: Report) -> None:
        for key, name in (("remote", RemoteAddress), ("branch", BranchName)):
            rules.git_name(report, key, name, getattr(self, key))


class DeployTargetConfig(ConfigModel):
    """A place that a plugin deploys to."""

    name: str
    """What applications call it."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Free attributes."""
    config: dict[str, Any] | None = None
    """The plugin's own settings for this place, passed on unread."""


class PluginConfig(ConfigModel):
    """A plugin to run. Without `url` it is the installed Python package `pipecd-plugin-<name>`."""

    aliases: ClassVar = {"sourceURL": "url"}

    name: str
    """What applications call it under `spec.plugins`."""
    url: str = ""
    """Where it comes from: `file://`, `https://`, `oci://`, `http://` with `sha256`, a path, or
    `package://<name>` for the plugin of that name that is installed beside piped."""
    sha256: str = ""
    """What the file must hash to."""
    insecure: bool = False
    """Is the registry of an `oci://` address spoken to without TLS? Off this machine that needs a
    digest or `sha256`."""
    port: int = 0
    """Where it listens; an installed package chooses its own."""
    config: dict[str, Any] | None = None
    """The plugin's own settings, passed on unread."""
    deploy_targets: tuple[DeployTargetConfig, ...] = ()

    @classmethod
    def finish(cls, values: dict[str, Any]) -> dict[str, Any]:
        url = values.get("url", "")
        # A path is what the plugin document calls a source too; plugins themselves insist on a URL.
        if url.startswith("/"):
            values["url"] = f"file://{url}"
        return values

    def start_json(self) -> str:
        """Write the entry as a plugin gets it on its command line."""
        entry: dict[str, Any] = {"name": self.name, "url": self.url, "port": self.port}
        if self.config:
            entry["config"] = self.config
        if self.deploy_targets:
            entry["deployTargets"] = [_target_entry(target) for target in self.deploy_targets]
        return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))

    def check(self, report: Report) -> None:
        if self.name and not _PLUGIN_NAME.fullmatch(self.name):
            report.fault(
                "name", message=f"not a plugin name: {self.name!r}", hint="letters, digits, . _ -"
            )
        if self.sha256 and not _SHA256.fullmatch(self.sha256):
            report.fault("sha256", message="not a SHA-256 sum", hint="64 hexadecimal digits")
        if self.port and self.port not in _PORTS:
            report.fault("port", message=f"not a port: {self.port}", hint="1 to 65535")
        if self.url:
            self._check_source(report)
        targets = [target.name for target in self.deploy_targets]
        rules.unique(report, "deployTargets", of="name", values=targets)

    def _check_source(self, report: Report) -> None:
        scheme = urlsplit(self.url).scheme if "://" in self.url else ""
        if scheme and scheme not in _SCHEMES:
            report.fault(
                "url",
                message=f"cannot fetch {scheme!r} addresses",
                hint="use file, https, oci or package, or a path",
            )
        if scheme == "http" and not self.sha256 and not report.is_broken("sha256"):
            report.fault("url", message="http needs sha256", hint="or use https")
        if scheme == "oci":
            self._check_reference(report)
        elif self.insecure:
            report.fault("insecure", message="only for oci", hint="leave it out")
        if not self.port and scheme != "package" and not report.is_broken("port"):
            report.fault("port", message="missing", hint="where the plugin listens, e.g. 7001")

    def _check_reference(self, report: Report) -> None:
        try:
            reference = parse_reference(self.url)
        except ConfigError as error:
            report.fault("url", message=str(error), hint=error.hint)
            return
        is_pinned = reference.digest or self.sha256 or report.is_broken("sha256")
        if self.insecure and not is_pinned and not reference.is_loopback:
            report.fault(
                "url", message="insecure needs a digest", hint="add @sha256:…, or give sha256"
            )


def _target_entry(target: DeployTargetConfig) -> dict[str, Any]:
    labels = {"labels": target.labels} if target.labels else {}
    return {"name": target.name, **labels, "config": target.config}


class KeyPairConfig(ConfigModel):
    """The two halves of an RSA key that closes and opens secrets."""

    private_key_file: str = ""
    """The file with the private key, PEM."""
    private_key_data: Base64Secret | None = None
    """Base64 of the private key."""
    old_private_key_file: str = ""
    """The file with the private key before this one, while secrets are still closed for it."""
    old_private_key_data: Base64Secret | None = None
    """Base64 of the private key before this one."""
    public_key_file: str = ""
    """The file with the public key, PEM."""
    public_key_data: str = ""
    """Base64 of the public key."""

    def check(self, report: Report) -> None:
        for half in ("private", "public"):
            file, data = f"{half}KeyFile", f"{half}KeyData"
            given = [
                bool(getattr(self, f"{half}_key_file")),
                bool(getattr(self, f"{half}_key_data")) or report.is_broken(data),
            ]
            if given.count(True) != 1:
                report.fault(file, message=f"set exactly one of {file} and {data}")
        if self.old_private_key_file and self.old_private_key_data:
            report.fault(
                "oldPrivateKeyData",
                message="oldPrivateKeyFile and oldPrivateKeyData exclude each other",
            )


class SecretManagementConfig(ConfigModel):
    """How secrets in git are opened."""

    variants: ClassVar = {"KEY_PAIR": KeyPairConfig}

    type: Literal["KEY_PAIR"]
    """How."""
    config: KeyPairConfig


class EventWatcherRepositoryConfig(ConfigModel):
    """What is special about events in one repository."""

    repo_id: str = msgspec.field(name="repoId")
    """One of `repositories`."""
    commit_message: str = ""
    """A template that knows `.Value` and `.EventName`."""
    includes: tuple[str, ...] = ()
    """Only these files under `.pipe/`."""
    excludes: tuple[str, ...] = ()
    """All but these files under `.pipe/`; then `includes` does not count."""


class PipedEventWatcherConfig(ConfigModel):
    """How often events are looked for, and where."""

    check_interval: Duration = Duration(minutes=1)
    """How often events are looked for."""
    git_repos: tuple[EventWatcherRepositoryConfig, ...] = ()

    def check(self, report: Report) -> None:
        rules.not_negative(report, "checkInterval", self.check_interval)


class PlanPreviewConfig(ConfigModel):
    """How many previews are worked on, and how long one may take."""

    worker_num: int = 3
    """How many at once."""
    command_queue_buffer_size: int = 10
    """How many may wait."""
    command_check_interval: Duration = Duration(seconds=5)
    """How often requests are looked for."""
    command_handle_timeout: Duration = Duration(minutes=5)
    """How long one may take."""

    def check(self, report: Report) -> None:
        for key, number in (
            ("workerNum", self.worker_num),
            ("commandQueueBufferSize", self.command_queue_buffer_size),
        ):
            if number < 0:
                report.fault(key, message=f"must not be negative: {number}")
        rules.not_negative(report, "commandCheckInterval", self.command_check_interval)
        rules.not_negative(report, "commandHandleTimeout", self.command_handle_timeout)


class AutoRegistrationConfig(ConfigModel):
    """Which applications the agent registers itself when it finds their files; all that is given
    must match. Without this section people register them."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels that the application file must carry."""
    repositories: tuple[str, ...] = ()
    """Only in these of `repositories`; in all if empty."""
    paths: tuple[str, ...] = ()
    """Only files below these paths, e.g. `apps/**` or `!apps/old/**`; everywhere if empty."""
    limit: int = 100
    """How many applications the agent may have; beyond that people register them."""

    def check(self, report: Report) -> None:
        unread = any(report.is_broken(key) for key in ("labels", "repositories", "paths"))
        if not unread and not (self.labels or self.repositories or self.paths):
            report.fault(
                message="selects nothing",
                hint="give labels, repositories or paths; everything is paths: ['**']",
            )
        rules.path_patterns(report, "paths", self.paths)
        if not 1 <= self.limit <= _MOST_REGISTERED:
            report.fault(
                "limit",
                message=f"not a number of applications: {self.limit}",
                hint=f"1 to {_MOST_REGISTERED}",
            )


class LimitsConfig(ConfigModel):
    """How much of what a piped does at the same time."""

    deployments: int = 100
    """Deployments that run at once, those included that wait in a stage. A roll-back of a person,
    and what was begun before a restart, does not wait for its turn."""
    scripts: int = 0
    """SCRIPT_RUN stages that run at once; 0 for no limit. Those of a rollback do not count."""

    def check(self, report: Report) -> None:
        if self.deployments < 1:
            report.fault(
                "deployments", message=f"must be at least 1: {self.deployments}", hint="e.g. 100"
            )
        if self.scripts < 0:
            report.fault(
                "scripts", message=f"must not be negative: {self.scripts}", hint="0 for no limit"
            )


class PipedConfig(ConfigModel):
    """An agent: who it is, whom it serves, and which plugins it runs."""

    aliases: ClassVar = {"plugin": "plugins"}
    moved: ClassVar = {
        "platformProviders": f"move them to plugins[].deployTargets; {_MIGRATE}",
        "cloudProviders": f"move them to plugins[].deployTargets; {_MIGRATE}",
        "analysisProviders": f"move them to the config of the plugin analysis; {_MIGRATE}",
        "chartRepositories": f"move them to the config of the plugin kubernetes; {_MIGRATE}",
        "chartRegistries": f"move them to the config of the plugin kubernetes; {_MIGRATE}",
    }

    project_id: str
    """The project this piped belongs to."""
    piped_id: str
    """The id it got when it was registered."""
    api_address: str
    """`host:port` of the control plane."""
    piped_key_file: str = ""
    """The file with the key it got when it was registered."""
    piped_key_data: Base64Secret | None = None
    """Base64 of the key it got when it was registered."""
    name: str = ""
    """Kept for older files; the control plane knows the name."""
    web_address: str = ""
    """The address of the console, for links."""
    sync_interval: Duration = Duration(minutes=1)
    """How often watched branches are compared with what is deployed."""
    app_config_sync_interval: Duration = Duration(minutes=1)
    """How often repositories are searched for application files."""
    git: GitConfig = msgspec.field(default_factory=GitConfig)
    repositories: tuple[RepositoryConfig, ...] = ()
    plugins: tuple[PluginConfig, ...] = ()
    notifications: NotificationsConfig = msgspec.field(default_factory=NotificationsConfig)
    secret_management: SecretManagementConfig | None = None
    event_watcher: PipedEventWatcherConfig = msgspec.field(default_factory=PipedEventWatcherConfig)
    plan_preview: PlanPreviewConfig = msgspec.field(default_factory=PlanPreviewConfig)
    limits: LimitsConfig = msgspec.field(default_factory=LimitsConfig)
    app_selector: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels that an application file must carry to be suggested for registration."""
    auto_registration: AutoRegistrationConfig | None = None

    def check(self, report: Report) -> None:
        self._check_identity(report)
        rules.not_negative(report, "syncInterval", self.sync_interval)
        rules.not_negative(report, "appConfigSyncInterval", self.app_config_sync_interval)
        repositories = [repository.repo_id for repository in self.repositories]
        rules.unique(report, "repositories", of="repoId", values=repositories)
        rules.unique(report, "plugins", of="name", values=[each.name for each in self.plugins])
        rules.unique(report, "plugins", of="port", values=[each.port for each in self.plugins])
        self._check_registration(repositories, report)
        watched = [repository.repo_id for repository in self.event_watcher.git_repos]
        rules.unique(report, "eventWatcher", "gitRepos", of="repoId", values=watched)
        for index, repo_id in enumerate(watched):
            if repo_id and repo_id not in repositories and not report.is_broken("repositories"):
                report.fault(
                    "eventWatcher",
                    "gitRepos",
                    index,
                    "repoId",
                    message=f"there is no repository {repo_id!r}",
                    hint=rules.nearest(repo_id, repositories),
                )

    def _check_registration(self, repositories: list[str], report: Report) -> None:
        if self.auto_registration is None or report.is_broken("repositories"):
            return
        for index, repo_id in enumerate(self.auto_registration.repositories):
            if repo_id not in repositories:
                report.fault(
                    "autoRegistration",
                    "repositories",
                    index,
                    message=f"there is no repository {repo_id!r}",
                    hint=rules.nearest(repo_id, repositories),
                )

    def _check_identity(self, report: Report) -> None:
        unread = report.is_broken("pipedKeyFile") or report.is_broken("pipedKeyData")
        if not unread and bool(self.piped_key_file) == bool(self.piped_key_data):
            report.fault(
                "pipedKeyData" if self.piped_key_data else "pipedKeyFile",
                message="set exactly one of pipedKeyFile and pipedKeyData",
            )
        if self.api_address and not _is_host_and_port(self.api_address):
            report.fault(
                "apiAddress",
                message=f"not host:port: {self.api_address!r}",
                hint="without a scheme, e.g. pipecd.example.com:443",
            )


def _is_host_and_port(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    return bool(host and colon) and "/" not in address and port.isdigit() and int(port) in _PORTS
