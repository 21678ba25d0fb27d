# SPDX-License-Identifier: Apache-2.0
"""The settings that decide who has access to a project."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.project import ProjectSettings
from pipecd_controlplane.usecases.sso_settings import SsoSettings
from pipecd_controlplane.usecases.vault import Vault
from pipecd_wire.model import project_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectAccess:
    """The settings of projects, and their single sign-on."""

    settings: ProjectSettings
    sso: SsoSettings


def build_access(
    stores: Stores,
    vault: Vault,
    *,
    configured: Collection[str] = (),
    shared: Mapping[str, project_pb2.ProjectSSOConfig] | None = None,
) -> ProjectAccess:
    shared = shared or {}
    settings = ProjectSettings(stores, configured, shared.keys())
    return ProjectAccess(settings=settings, sso=SsoSettings(stores, settings, vault, shared))
