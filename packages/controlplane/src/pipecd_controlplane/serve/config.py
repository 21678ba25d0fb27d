# SPDX-License-Identifier: Apache-2.0
"""The configuration file, as far as a server has a use for it."""

from dataclasses import dataclass, field
from pathlib import Path

import click

from pipecd_controlplane.ops.retention import FOR_A_YEAR, Retention
from pipecd_controlplane.store.blobs.config import (
    AwsProfile,
    BlobConfig,
    BlobFolder,
    KeyFiles,
    S3Bucket,
    WebIdentity,
)
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE
from pipecd_model.config import load_control_plane
from pipecd_model.config.controlplane import (
    ControlPlaneConfig,
    FolderConfig,
    MinioConfig,
    PostgresqlConfig,
    ProjectConfig,
    RetentionConfig,
    S3Config,
    SharedSsoConfig,
    SqliteConfig,
)
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_model.errors import ConfigError
from pipecd_runtime.terminal import make_printable


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFile:
    """What the file says."""

    public_url: str = ""
    state_key: str = ""
    data_dir: Path | None = None
    postgres: PostgresServer | None = None
    blobs: BlobConfig | None = None
    projects: tuple[ProjectConfig, ...] = ()
    shared_sso: tuple[SharedSsoConfig, ...] = ()
    retention: Retention = FOR_A_YEAR
    limits: FrontLimitsConfig = field(default_factory=FrontLimitsConfig)
    trusted_proxies: tuple[str, ...] = ()
    proxy_protocol: bool = False


def read(path: Path | None) -> FromFile:
    """Raises ConfigError; what has no meaning here is said, never silently ignored."""
    if path is None:
        return FromFile()
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    loaded = load_control_plane(text, file=str(path))
    config = loaded.config
    for warning in map(str, loaded.warnings):
        click.echo(make_printable(f"warning: {warning}"), err=True)
    return FromFile(
        public_url=config.address,
        state_key=config.state_key.reveal() if config.state_key else "",
        data_dir=_data_dir(config, path),
        postgres=_postgres(config),
        blobs=_blobs(config.filestore.config),
        projects=config.projects,
        shared_sso=config.shared_sso_configs,
        retention=_retention(config.retention),
        limits=config.limits,
        trusted_proxies=config.trusted_proxies,
        proxy_protocol=config.proxy_protocol,
    )


def warn_of_limits(limits: FrontLimitsConfig, *, with_tls: bool, with_admin_port: bool) -> None:
    """Say which limits were given in vain."""
    default = FrontLimitsConfig()
    if not with_tls and limits.tls_handshake_timeout != default.tls_handshake_timeout:
        _echo_no_effect("tlsHandshakeTimeout", "it serves without TLS: --tls-cert and --tls-key")
    if not with_admin_port and limits.max_admin_connections != default.max_admin_connections:
        _echo_no_effect("maxAdminConnections", "there is no admin port: --admin-port")


def warn_of_unused_file(told: FromFile, folder: Path) -> None:
    """Say that a SQLite file, perhaps just restored, is not what the server reads."""
    file = folder / DATABASE_FILE
    if told.postgres is not None and file.exists():
        said = f"warning: {str(file)!r} is not used: spec.datastore names PostgreSQL"
        click.echo(make_printable(said), err=True)


def _echo_no_effect(key: str, why: str) -> None:
    click.echo(f"warning: spec.limits.{key} has no effect: {why}", err=True)


def _retention(told: RetentionConfig) -> Retention:
    # In a file zero means the default, so for ever has a number of its own there.
    return Retention(
        deployments=max(told.deployments, 0),
        events=max(told.events, 0),
        commands=max(told.commands, 0),
        insights=max(told.insights, 0),
        audit=max(told.audit, 0),
        stage_log_bytes=told.stage_log_mebibytes * 1024 * 1024,
    )


def _data_dir(config: ControlPlaneConfig, path: Path) -> Path | None:
    folder = None
    if isinstance(config.datastore.config, SqliteConfig) and config.datastore.config.path:
        file = Path(config.datastore.config.path)
        if file.name != DATABASE_FILE:
            raise ConfigError(
                f"{path}: spec.datastore.config.path: the file must be called {DATABASE_FILE!r}",
                hint="its folder is the data folder, which one process owns",
            )
        folder = file.parent
    return folder


def _postgres(config: ControlPlaneConfig) -> PostgresServer | None:
    chosen = config.datastore.config
    if not isinstance(chosen, PostgresqlConfig):
        return None
    return PostgresServer(
        url=chosen.url.reveal(),
        password_file=Path(chosen.password_file) if chosen.password_file else None,
        connections=chosen.connections,
    )


def _blobs(chosen: FolderConfig | S3Config | MinioConfig) -> BlobConfig | None:
    if isinstance(chosen, S3Config):
        return S3Bucket(
            bucket=chosen.bucket,
            region=chosen.region,
            prefix=chosen.prefix,
            credentials=_credentials(chosen),
        )
    if isinstance(chosen, MinioConfig):
        has_keys = chosen.access_key_file and chosen.secret_key_file
        return S3Bucket(
            bucket=chosen.bucket,
            region=chosen.region,
            endpoint=chosen.endpoint.rstrip("/"),
            prefix=chosen.prefix,
            credentials=KeyFiles(
                access_key=Path(chosen.access_key_file), secret_key=Path(chosen.secret_key_file)
            )
            if has_keys
            else None,
            create_bucket=chosen.auto_create_bucket,
        )
    return BlobFolder(folder=Path(chosen.path).absolute()) if chosen.path else None


def _credentials(chosen: S3Config) -> AwsProfile | WebIdentity | None:
    if chosen.role_arn and chosen.token_file:
        return WebIdentity(role_arn=chosen.role_arn, token_file=Path(chosen.token_file))
    if chosen.credentials_file or chosen.profile:
        file = Path(chosen.credentials_file) if chosen.credentials_file else None
        return AwsProfile(file=file, name=chosen.profile)
    return None
