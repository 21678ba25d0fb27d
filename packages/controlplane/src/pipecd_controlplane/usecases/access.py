# SPDX-License-Identifier: Apache-2.0
"""The settings of a project: who has access to it, and which hooks it has."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.hooks import HookSettings
from pipecd_controlplane.usecases.project import ProjectSettings
from pipecd_controlplane.usecases.sso_settings import SsoSettings
from pipecd_controlplane.usecases.vault import Vault
from pipecd_wire.model import project_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectAccess:
    """The settings of projects, their single sign-on and their hooks."""

    settings: ProjectSettings
    sso: SsoSettings
    hooks: HookSettings


def build_access(
    stores: Stores,
    vault: Vault,
    now: Now,
    *,
    configured: Collection[str] = (),
    shared: Mapping[str, project_pb2.ProjectSSOConfig] | None = None,
) -> ProjectAccess:
    shared = shared or {}
    settings = ProjectSettings(stores, configured, shared.keys())
    return ProjectAccess(
        settings=settings,
        sso=SsoSettings(stores, settings, vault, shared),
        hooks=HookSettings(stores, vault, now),
    )
