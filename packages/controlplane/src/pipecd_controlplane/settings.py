# SPDX-License-Identifier: Apache-2.0
"""What a control plane is told from outside: by flags, the configuration file, or a test."""

from dataclasses import dataclass
from pathlib import Path

from pipecd_controlplane.http.server import DEFAULT_LIMITS, CertificateFiles
from pipecd_controlplane.ops.retention import FOR_A_YEAR, Retention
from pipecd_controlplane.usecases import releases
from pipecd_controlplane.usecases.leases import DEFAULT_TIMES, LeaseTimes
from pipecd_model.config.controlplane import ProjectConfig, SharedSsoConfig
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_runtime.logfold import FoldRepeats
from pipecd_wire.rpc import Observe


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything a control plane is told from outside."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    tls: CertificateFiles | None = None
    project_id: str | None = None
    """The project a new folder gets; None is the default one."""
    public_url: str = ""
    """Where people reach it, for links; empty is the address it listens on."""
    grace_seconds: float = 10.0
    """For running calls when it stops."""
    lease_times: LeaseTimes = DEFAULT_TIMES
    """How long an agent that fell silent keeps its work to itself."""
    projects: tuple[ProjectConfig, ...] = ()
    """Projects that are as the configuration file says."""
    shared_sso: tuple[SharedSsoConfig, ...] = ()
    state_key: str = ""
    """Closes what travels with a sign-in; empty is the encryption key."""
    static_dir: Path | None = None
    insecure_cookie: bool = False
    metrics: bool = True
    admin_host: str = "127.0.0.1"
    admin_port: int | None = None
    otlp_endpoint: str = ""
    """Where traces of pipeds are sent on to; empty drops them."""
    encryption_key_files: tuple[Path, ...] = ()
    """Keys for secrets at rest, the newest first; without any, one in the data folder."""
    retention: Retention = FOR_A_YEAR
    """How long things are kept."""
    limits: FrontLimitsConfig = DEFAULT_LIMITS
    """What callers may cost."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks whose word about the address of a caller is believed."""
    folded: FoldRepeats | None = None
    """What holds back equal lines of the log, and tells of them when it is asked."""
    releases_url: str = releases.URL
    observers: tuple[Observe, ...] = ()
    """Told of each call once its handler has ended, before it is answered."""
    repeat_units: bool = False
    """For tests: run each unit of work twice and compare."""

    @property
    def over_tls(self) -> bool:
        """Do browsers reach it over TLS, ours or a proxy's before us?"""
        return self.tls is not None or self.public_url.startswith("https://")
