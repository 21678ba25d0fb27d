# SPDX-License-Identifier: Apache-2.0
"""The document `ControlPlane`: where a control plane keeps things and who may sign in.

All of it is optional: without a file a single process keeps everything in its data folder.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from pipecd_model.config import rules
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_model.config.schema import ConfigModel, Report, yaml_key
from pipecd_model.config.values import Duration, Secret

_BCRYPT = re.compile(r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}")
_ELSEWHERE = {
    "MYSQL": "use POSTGRESQL",
    "FIRESTORE": "use POSTGRESQL",
    "GCS": "use S3 or FOLDER",
    "GOOGLE": "use OIDC",
}


class SqliteConfig(ConfigModel):
    """One file; without a path, in the data folder."""

    path: str = ""
    """The file."""


class PostgresqlConfig(ConfigModel):
    """A database of PostgreSQL, which any number of control planes may share."""

    url: Secret
    """As libpq writes it: `postgresql://user:password@host:5432/database`."""
    password_file: str = ""
    """The file with the password, if the URL has none."""
    connections: int = 8
    """How many connections each control plane opens at most, beside two that it keeps for itself:
    one listens, one holds the locks of timed jobs."""

    def check(self, report: Report) -> None:
        if not 2 <= self.connections <= 1000:
            report.fault("connections", message=f"between 2 and 1000: {self.connections}")


class DatastoreConfig(ConfigModel):
    """Where entities are kept."""

    variants: ClassVar = {"SQLITE": SqliteConfig, "POSTGRESQL": PostgresqlConfig}

    type: Literal["SQLITE", "POSTGRESQL"] = "SQLITE"
    """Which."""
    config: SqliteConfig | PostgresqlConfig = msgspec.field(default_factory=SqliteConfig)

    @classmethod
    def prepare(cls, raw: dict[str, Any], report: Report) -> dict[str, Any]:
        return _refuse_unknown_type(raw, report)

    def check(self, report: Report) -> None:
        missing = self.type == "POSTGRESQL" and isinstance(self.config, SqliteConfig)
        if missing and not report.is_broken("config"):
            report.fault("config", message="missing", hint="POSTGRESQL needs config.url")


class FolderConfig(ConfigModel):
    """A folder; without a path, `blobs` in the data folder. Several servers must share it."""

    path: str = ""
    """The folder."""


class S3Config(ConfigModel):
    """A bucket at AWS."""

    bucket: str
    """Its name."""
    region: str
    """Where it is."""
    profile: str = ""
    """A profile of the credentials file."""
    credentials_file: str = ""
    """The file with the credentials. Without this and `profile` those of the environment are
    used: variables, or the identity of the pod, the task or the machine."""
    role_arn: str = msgspec.field(name="roleARN", default="")
    """A role to take on; needs `tokenFile`."""
    token_file: str = ""
    """The file with a web identity token."""
    prefix: str = ""
    """What all keys begin with, so that several can share a bucket."""

    def check(self, report: Report) -> None:
        if bool(self.role_arn) != bool(self.token_file):
            given, missing = ("roleARN", "tokenFile") if self.role_arn else ("tokenFile", "roleARN")
            report.warn(given, message=f"has no effect without {missing}")
        elif self.role_arn:
            for key in ("profile", "credentials_file"):
                if getattr(self, key):
                    name = yaml_key(key)
                    report.warn(name, message="has no effect beside roleARN and tokenFile")
        _check_bucket(report, self.bucket, self.region, self.prefix)


class MinioConfig(ConfigModel):
    """A bucket at anything that speaks S3."""

    endpoint: str
    """Its address, with `https://` or `http://`."""
    bucket: str
    """Its name."""
    access_key_file: str = ""
    """The file with the access key."""
    secret_key_file: str = ""
    """The file with the secret key."""
    auto_create_bucket: bool = False
    """Make the bucket if there is none."""
    region: str = ""
    """If it has regions; else us-east-1."""
    prefix: str = ""
    """What all keys begin with, so that several can share a bucket."""

    def check(self, report: Report) -> None:
        if "@" in self.endpoint:
            # It stands in errors that everybody who may read a log can see.
            report.fault(
                "endpoint",
                message="holds a user or a password",
                hint="put the keys into files, and name these in accessKeyFile and secretKeyFile",
            )
        elif self.endpoint and not _is_address(self.endpoint):
            report.fault(
                "endpoint",
                message=f"not an address: {self.endpoint!r}",
                hint="https:// or http:// with a host, and a port if need be",
            )
        if bool(self.access_key_file) != bool(self.secret_key_file):
            missing = "secretKeyFile" if self.access_key_file else "accessKeyFile"
            report.fault(missing, message="missing", hint="both keys are needed, or neither")
        _check_bucket(report, self.bucket, self.region, self.prefix)


def _is_address(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    is_plain = re.fullmatch(r"[!-~]+", endpoint) is not None
    return is_plain and parts.scheme in {"https", "http"} and bool(parts.hostname) and has_port


def _check_bucket(report: Report, bucket: str, region: str, prefix: str) -> None:
    """Refuses what the driver would make a request of that cannot be sent."""
    if bucket and (not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", bucket) or ".." in bucket):
        report.fault(
            "bucket",
            message=f"not the name of a bucket: {bucket!r}",
            hint="letters, digits, '.', '_' and '-'; what is before the keys is prefix",
        )
    if not re.fullmatch(r"[A-Za-z0-9._-]*", region):
        report.fault("region", message=f"not a region: {region!r}", hint="e.g. eu-central-1")
    if not re.fullmatch(r"[A-Za-z0-9._/-]*", prefix) or ".." in prefix or "//" in prefix:
        report.fault(
            "prefix",
            message=f"not a prefix of keys: {prefix!r}",
            hint="letters, digits, '.', '_' and '-', with '/' between them",
        )


class FilestoreConfig(ConfigModel):
    """Where large objects are kept."""

    variants: ClassVar = {"FOLDER": FolderConfig, "S3": S3Config, "MINIO": MinioConfig}

    type: Literal["FOLDER", "S3", "MINIO"] = "FOLDER"
    """Which."""
    config: FolderConfig | S3Config | MinioConfig = msgspec.field(default_factory=FolderConfig)

    @classmethod
    def prepare(cls, raw: dict[str, Any], report: Report) -> dict[str, Any]:
        return _refuse_unknown_type(raw, report)

    def check(self, report: Report) -> None:
        missing = self.type != "FOLDER" and isinstance(self.config, FolderConfig)
        if missing and not report.is_broken("config"):
            report.fault("config", message="missing", hint=f"{self.type} needs config.bucket")


def _refuse_unknown_type(raw: dict[str, Any], report: Report) -> dict[str, Any]:
    """Say what to use instead of a store that others have and we do not."""
    chosen = raw.get("type")
    if not isinstance(chosen, str) or chosen not in _ELSEWHERE:
        return raw
    report.fault("type", message=f"{chosen} is not supported", hint=_ELSEWHERE[chosen])
    return {}


class CacheConfig(ConfigModel):
    """How long what was read is trusted."""

    ttl: Duration = Duration(minutes=5)
    """How long."""


class ApplicationInsightConfig(ConfigModel):
    """Counting of applications."""

    enabled: bool = True
    """Turns it off with `false`."""
    schedule: str = "0 * * * *"
    """When, as five cron fields."""

    def check(self, report: Report) -> None:
        check_cron(report, "schedule", self.schedule)


class DeploymentInsightConfig(ConfigModel):
    """Counting of deployments."""

    enabled: bool = True
    """Turns it off with `false`."""
    schedule: str = "30 * * * *"
    """When, as five cron fields."""
    chunk_max_count: int = 1000
    """How many are kept in one piece."""

    def check(self, report: Report) -> None:
        check_cron(report, "schedule", self.schedule)


class InsightCollectorConfig(ConfigModel):
    """What is counted, and when."""

    application: ApplicationInsightConfig = msgspec.field(default_factory=ApplicationInsightConfig)
    deployment: DeploymentInsightConfig = msgspec.field(default_factory=DeploymentInsightConfig)


class RetentionConfig(ConfigModel):
    """How many days things are kept once they are over; -1 is for ever."""

    deployments: int = 365
    """Deployments with their stage logs, chains and traces. The last one that succeeded stays."""
    events: int = 90
    """Events, handled or not."""
    commands: int = 30
    """Commands that were handled."""
    insights: int = 1100
    """The ends of deployments, from which figures are made."""
    audit: int = 1100
    """Who did what. What is cut off at the old end is told by a record of its own."""
    stage_log_mebibytes: int = 64
    """How much of one stage's log is kept, in MiB; the log says where it was cut."""

    def check(self, report: Report) -> None:
        if not 1 <= self.stage_log_mebibytes <= 102_400:
            report.fault(
                "stageLogMebibytes",
                message=f"not a size: {self.stage_log_mebibytes}",
                hint="between 1 and 102400 MiB",
            )
        for key in ("deployments", "events", "commands", "insights", "audit"):
            days = getattr(self, key)
            if not -1 <= days <= 100_000:
                report.fault(key, message=f"not a number of days: {days}", hint="-1 is for ever")
        if self.insights >= 0 and not 0 <= self.deployments <= self.insights:
            report.fault(
                "insights",
                message=f"{self.insights} days are less than those of deployments",
                hint="figures are kept at least as long as what they are made of",
            )


class StaticAdminConfig(ConfigModel):
    """A person who signs in with a password."""

    username: str
    """The name to sign in with."""
    password_hash: Secret
    """A bcrypt hash."""

    def check(self, report: Report) -> None:
        if self.password_hash and not _BCRYPT.fullmatch(self.password_hash.reveal()):
            report.fault("passwordHash", message="not a bcrypt hash", hint="starts with $2")


class ProjectConfig(ConfigModel):
    """A project that is there from the start."""

    id: str
    """Its id."""
    desc: str = ""
    """What it is for."""
    static_admin: StaticAdminConfig | None = None


class GithubConfig(ConfigModel):
    """An OAuth app at GitHub."""

    snake_case: ClassVar = True

    client_id: str = msgspec.field(name="clientId")
    """The app's id."""
    client_secret: Secret
    """The app's secret."""
    base_url: str = msgspec.field(name="baseUrl", default="")
    """The API of an own server."""
    upload_url: str = msgspec.field(name="uploadUrl", default="")
    """The uploads of an own server."""
    proxy_url: str = msgspec.field(name="proxyUrl", default="")
    """A proxy on the way."""


class OidcConfig(ConfigModel):
    """A client at an OpenID Connect provider."""

    snake_case: ClassVar = True

    client_id: str = msgspec.field(name="clientId")
    """The client's id."""
    client_secret: Secret
    """The client's secret."""
    issuer: str
    """The provider's address."""
    redirect_uri: str
    """Where the provider sends people back to."""
    authorization_endpoint: str = ""
    """If the provider does not say it itself."""
    token_endpoint: str = ""
    """If the provider does not say it itself."""
    user_info_endpoint: str = ""
    """If the provider does not say it itself."""
    proxy_url: str = msgspec.field(name="proxyUrl", default="")
    """A proxy on the way."""
    scopes: tuple[str, ...] = ("openid",)
    """What is asked for."""
    username_claim_key: str = ""
    """The claim with the person's name."""
    roles_claim_key: str = ""
    """The claim with the person's roles."""
    avatar_url_claim_key: str = msgspec.field(name="avatarUrlClaimKey", default="")
    """The claim with the person's picture."""


class SharedSsoConfig(ConfigModel):
    """A way to sign in that several projects use."""

    snake_case: ClassVar = True

    name: str
    """What projects call it."""
    provider: Literal["GITHUB", "OIDC"]
    """Through whom."""
    session_ttl: int = 168
    """Hours."""
    github: GithubConfig | None = None
    oidc: OidcConfig | None = None

    def check(self, report: Report) -> None:
        if self.session_ttl <= 0:
            report.fault("sessionTtl", message=f"must be positive: {self.session_ttl}")
        for provider, section in (("GITHUB", self.github), ("OIDC", self.oidc)):
            key = provider.lower()
            if self.provider == provider and section is None and not report.is_broken(key):
                report.fault(key, message="missing", hint=f"the provider is {provider}")


class ControlPlaneConfig(ConfigModel):
    """Where a control plane keeps things and who may sign in."""

    address: str = ""
    """Its public URL, for links and for signing in through others."""
    state_key: Secret | None = None
    """Signs what travels with a sign-in through others."""
    datastore: DatastoreConfig = msgspec.field(default_factory=DatastoreConfig)
    filestore: FilestoreConfig = msgspec.field(default_factory=FilestoreConfig)
    cache: CacheConfig = msgspec.field(default_factory=CacheConfig)
    insight_collector: InsightCollectorConfig = msgspec.field(
        default_factory=InsightCollectorConfig
    )
    retention: RetentionConfig = msgspec.field(default_factory=RetentionConfig)
    limits: FrontLimitsConfig = msgspec.field(default_factory=FrontLimitsConfig)
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies, e.g. `10.0.0.0/8`: only from these `X-Forwarded-For` is
    believed. Without any, the address of whoever connects is the caller's."""
    proxy_protocol: bool = False
    """The trusted proxies pass TCP on and name the caller by the PROXY protocol, version 1 or 2.
    Their connections are refused without its header, and `X-Forwarded-For` is not believed."""
    projects: tuple[ProjectConfig, ...] = ()
    shared_sso_configs: tuple[SharedSsoConfig, ...] = msgspec.field(
        name="sharedSSOConfigs", default=()
    )

    def check(self, report: Report) -> None:
        for index, network in enumerate(self.trusted_proxies):
            _check_network(report, index, network)
        if self.proxy_protocol and not self.trusted_proxies:
            report.warn("proxyProtocol", message="has no effect without trustedProxies")
        rules.unique(report, "projects", of="id", values=[each.id for each in self.projects])
        names = [each.name for each in self.shared_sso_configs]
        rules.unique(report, "sharedSSOConfigs", of="name", values=names)
        if self.shared_sso_configs and not self.address:
            report.fault("address", message="missing", hint="signing in through others needs it")
        if self.shared_sso_configs and not self.state_key:
            report.fault("stateKey", message="missing", hint="signing in through others needs it")


def _check_network(report: Report, index: int, network: str) -> None:
    place = ("trustedProxies", index)
    try:
        found = ipaddress.ip_network(network)
    except ValueError:
        report.fault(
            *place, message=f"not a network: {network!r}", hint="e.g. 10.0.0.7 or 10.0.0.0/8"
        )
        return
    if found.prefixlen == 0:
        report.fault(*place, message=f"{network!r} is everybody", hint="name your proxies")


def check_cron(report: Report, key: str, schedule: str) -> None:
    """Refuse a schedule that is not of five fields."""
    if len(schedule.split()) != 5:
        report.fault(key, message=f"not a schedule: {schedule!r}", hint="five fields: 0 * * * *")
