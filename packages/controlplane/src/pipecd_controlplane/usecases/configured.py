# SPDX-License-Identifier: Apache-2.0
"""Projects and shared single sign-on from the configuration file."""

from collections.abc import Sequence

from pipecd_controlplane.store.auditing import auditing
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.audit_actors import CONFIGURE_PROJECT, SERVER, describe_act
from pipecd_model.config.controlplane import ProjectConfig, SharedSsoConfig
from pipecd_wire.model import project_pb2 as pb
from pipecd_wire.pipecd.api import access_pb2


async def ensure_projects(stores: Stores, projects: Sequence[ProjectConfig], now: Now) -> None:
    """Creates or updates the projects as the configuration file says; other settings stay."""
    at = now()
    for config in projects:

        async def work(transaction: Transaction, config: ProjectConfig = config) -> None:
            await stores.projects.add_if_absent_in(
                transaction, pb.Project(id=config.id, created_at=at, updated_at=at)
            )
            known = await stores.projects.get_in(transaction, config.id)
            wanted = pb.Project()
            wanted.CopyFrom(known)
            _take(wanted, config)
            if wanted == known:
                return
            await stores.projects.update_in(
                transaction, config.id, lambda project: _take(project, config)
            )
            if (wanted.static_admin, wanted.static_admin_disabled) != (
                known.static_admin,
                known.static_admin_disabled,
            ):
                await stores.sessions.end_via_in(
                    transaction, config.id, access_pb2.Session.STATIC_ADMIN
                )

        with auditing(describe_act(config.id, SERVER, CONFIGURE_PROJECT, at)):
            await stores.database.write(work)


def _take(project: pb.Project, config: ProjectConfig) -> None:
    project.desc = config.desc
    admin = config.static_admin
    project.static_admin_disabled = admin is None
    if admin is not None:
        project.static_admin.username = admin.username
        project.static_admin.password_hash = admin.password_hash.reveal()


def build_shared_sso(configs: Sequence[SharedSsoConfig]) -> dict[str, pb.ProjectSSOConfig]:
    """Returns the shared single sign-on configurations, by name."""
    return {config.name: _build_sso(config) for config in configs}


def _build_sso(config: SharedSsoConfig) -> pb.ProjectSSOConfig:
    sso = pb.ProjectSSOConfig(session_ttl=config.session_ttl)
    if config.provider == "GITHUB" and (github := config.github):
        sso.provider = pb.ProjectSSOConfig.GITHUB
        sso.github.CopyFrom(
            pb.ProjectSSOConfig.GitHub(
                client_id=github.client_id,
                client_secret=github.client_secret.reveal(),
                base_url=github.base_url,
                upload_url=github.upload_url,
                proxy_url=github.proxy_url,
            )
        )
    elif oidc := config.oidc:
        sso.provider = pb.ProjectSSOConfig.OIDC
        sso.oidc.CopyFrom(
            pb.ProjectSSOConfig.Oidc(
                client_id=oidc.client_id,
                client_secret=oidc.client_secret.reveal(),
                issuer=oidc.issuer,
                redirect_uri=oidc.redirect_uri,
                authorization_endpoint=oidc.authorization_endpoint,
                token_endpoint=oidc.token_endpoint,
                user_info_endpoint=oidc.user_info_endpoint,
                proxy_url=oidc.proxy_url,
                scopes=oidc.scopes,
                roles_claim_key=oidc.roles_claim_key,
                username_claim_key=oidc.username_claim_key,
                avatar_url_claim_key=oidc.avatar_url_claim_key,
            )
        )
    return sso
