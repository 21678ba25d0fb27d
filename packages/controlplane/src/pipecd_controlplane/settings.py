# SPDX-License-Identifier: Apache-2.0
"""The settings of a control plane, from flags, the configuration file, or a test."""

from dataclasses import dataclass
from pathlib import Path

from pipecd_controlplane.http.server import DEFAULT_LIMITS, CertificateFiles
from pipecd_controlplane.ops.retention import FOR_A_YEAR, Retention
from pipecd_controlplane.store.blobs.config import FOLDER_NAME, BlobConfig, BlobFolder
from pipecd_controlplane.store.open import DatabaseConfig, SqliteFolder
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.usecases import releases
from pipecd_controlplane.usecases.leases import DEFAULT_TIMES, LeaseTimes
from pipecd_model.config.controlplane import ProjectConfig, SharedSsoConfig
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_runtime.logfold import FoldRepeats
from pipecd_wire.rpc import Observe


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """All settings of a control plane."""

    data_dir: Path
    postgres: PostgresServer | None = None
    """Where the rows are; None is a SQLite file in the data folder."""
    blobs: BlobConfig | None = None
    """Where objects are; None is a folder in the data folder."""
    host: str = "127.0.0.1"
    port: int = 0
    tls: CertificateFiles | None = None
    project_id: str | None = None
    """The project a new folder gets; None is the default one."""
    public_url: str = ""
    """Where people reach it, for links; empty is the address it listens on."""
    grace_seconds: float = 10.0
    """How long running calls may take to finish when it stops."""
    drain_seconds: float = 0.0
    """How long it still serves after it was told to stop, and says that it is not ready."""
    lease_times: LeaseTimes = DEFAULT_TIMES
    """How long the lease of a piped lasts that no longer calls."""
    projects: tuple[ProjectConfig, ...] = ()
    """Projects that the configuration file declares."""
    shared_sso: tuple[SharedSsoConfig, ...] = ()
    state_key: str = ""
    """Encrypts the cookie of a sign-in; empty is the encryption key."""
    static_dir: Path | None = None
    """A page that somebody else has built; None is our own console."""
    console_dir: Path | None = None
    """Where our console is, once it is built; None is inside the installed package."""
    insecure_cookie: bool = False
    metrics: bool = True
    admin_host: str = "127.0.0.1"
    admin_port: int | None = None
    otlp_endpoint: str = ""
    """Where traces of pipeds are forwarded to; empty drops them."""
    encryption_key_files: tuple[Path, ...] = ()
    """Keys for secrets at rest, the newest first; without any, one in the data folder."""
    retention: Retention = FOR_A_YEAR
    """How long things are kept."""
    limits: FrontLimitsConfig = DEFAULT_LIMITS
    """Limits for callers: connections, sizes and times."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies that are believed when they name a caller's address."""
    proxy_protocol: bool = False
    """Whether they do it by the PROXY protocol, not in `X-Forwarded-For`."""
    folded: FoldRepeats | None = None
    """The log filter that holds back equal lines; the server flushes its counts."""
    releases_url: str = releases.URL
    observers: tuple[Observe, ...] = ()
    """Called for each call once its handler has ended, before the response is sent."""
    repeat_units: bool = False
    """For tests: run each unit of work twice and compare."""

    @property
    def database(self) -> DatabaseConfig:
        """Returns where the rows are."""
        return self.postgres or SqliteFolder(folder=self.data_dir, repeat_units=self.repeat_units)

    @property
    def blob_store(self) -> BlobConfig:
        """Returns where objects are."""
        return self.blobs or BlobFolder(folder=self.data_dir / FOLDER_NAME)

    @property
    def seals(self) -> bool:
        """Returns whether objects leave the database: not for a folder that other servers lack."""
        return self.postgres is None or self.blobs is not None

    @property
    def over_tls(self) -> bool:
        """Returns whether browsers reach it over TLS, ours or that of a proxy before us."""
        return self.tls is not None or self.public_url.startswith("https://")
