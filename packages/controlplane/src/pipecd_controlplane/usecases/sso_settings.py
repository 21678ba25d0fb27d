# SPDX-License-Identifier: Apache-2.0
"""Single sign-on of a project: the provider's configuration, stored with encrypted secrets.

A project uses a shared configuration from the configuration file, or one of its own.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal

from google.protobuf.message import Message

from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.pipeds import REDACTED
from pipecd_controlplane.usecases.project import ProjectSettings
from pipecd_controlplane.usecases.vault import Vault, is_encrypted
from pipecd_model.errors import ConfigError, StateError
from pipecd_runtime.logs import logger
from pipecd_wire.model import project_pb2 as pb

log = logger(__name__)

Section = Literal["github", "oidc"]
SECRETS: Final = ("client_id", "client_secret")
ADDRESSES: Final[Mapping[Section, tuple[str, ...]]] = {
    "github": ("base_url", "upload_url", "proxy_url"),
    "oidc": (
        "issuer",
        "authorization_endpoint",
        "token_endpoint",
        "user_info_endpoint",
        "proxy_url",
    ),
}
"""Where the secrets of a client may be sent to."""


class SsoSettings:
    """Reads and changes the single sign-on configuration of projects."""

    def __init__(
        self,
        stores: Stores,
        settings: ProjectSettings,
        vault: Vault,
        shared: Mapping[str, pb.ProjectSSOConfig],
    ) -> None:
        self._stores = stores
        self._settings = settings
        self._vault = vault
        self._shared = shared

    def read_config(self, project: pb.Project) -> pb.ProjectSSOConfig:
        """Returns the project's configuration, decrypted. Raises StateError when there is none."""
        if project.shared_sso_name:
            shared = self._shared.get(project.shared_sso_name)
            if shared is None:
                raise StateError(
                    f"there is no shared sign-in {project.shared_sso_name!r}",
                    hint="add it to sharedSSOConfigs of the configuration file",
                )
            return shared
        if not project.HasField("sso"):
            raise StateError(f"the project {project.id!r} has no single sign-on")
        opened = pb.ProjectSSOConfig()
        opened.CopyFrom(project.sso)
        client = _client(opened)
        for name in SECRETS:
            closed = getattr(client, name)
            setattr(client, name, self._vault.decrypt(closed, place=_place(project.id, name)))
        return opened

    async def change(self, project_id: str, wanted: pb.ProjectSSOConfig) -> None:
        """Stores a configuration of the project's own; a redacted id or secret keeps the old one.

        Raises ConfigError when there is none to keep, and for kept ones that would now be sent to
        another address: whoever changes the address could read them there.
        """
        if wanted.provider == pb.ProjectSSOConfig.GOOGLE:
            raise ConfigError("invalid request: sso: GOOGLE is not supported", hint="use OIDC")
        section = _section(wanted)
        if not wanted.HasField(section):
            raise ConfigError(f"invalid request: sso: {section} is not set")
        if section == "oidc" and not wanted.oidc.issuer:
            raise ConfigError("invalid request: sso: oidc.issuer is not set")

        # Once, and not within the unit of work, which may be run again.
        given = {name: getattr(_client(wanted), name) for name in SECRETS}
        closed = {
            name: self._vault.encrypt(secret, place=_place(project_id, name))
            for name, secret in given.items()
            if secret and secret != REDACTED
        }

        def edit(project: pb.Project) -> None:
            kept = pb.ProjectSSOConfig()
            kept.CopyFrom(wanted)
            _clear_others(kept, section)
            client = _client(kept)
            before = getattr(project.sso, section)
            for name in SECRETS:
                setattr(client, name, closed.get(name) or getattr(before, name))
                if not getattr(client, name):
                    raise ConfigError(f"invalid request: sso: {section}.{name} is not set")
            moved = [name for name in ADDRESSES[section] if _differ(client, before, name)]
            if moved and "client_secret" not in closed:
                raise ConfigError(
                    f"invalid request: sso: {section}.client_secret is not set, and"
                    f" {', '.join(moved)} changes",
                    hint="give the secret again: it would be sent to another address",
                )
            project.sso.CopyFrom(kept)
            project.shared_sso_name = ""

        await self._settings.change(project_id, edit)

    async def close_anew(self) -> int:
        """Re-encrypts with the current key the secrets that an older key has encrypted.

        Returns the number of projects changed. A secret that no key decrypts stays as it is: users
        of that project cannot use single sign-on until it is set again; other projects are not
        affected.
        """
        changed = 0
        for project in await self._stores.projects.all():
            if not all(map(self._vault.is_current, list_closed(project))):
                try:
                    await self._stores.projects.update(project.id, self._renewal(project))
                    changed += 1
                except StateError as error:
                    log.warning("sso.secret_lost", project_id=project.id, error=str(error))
        return changed

    def _renewal(self, project: pb.Project) -> Callable[[pb.Project], None]:
        """Re-encrypts the secrets of a project. Returns the edit that replaces the old ones."""
        client = _client(project.sso)
        renewed: dict[str, tuple[str, str]] = {}
        for name in SECRETS:
            place, before = _place(project.id, name), getattr(client, name)
            opened = self._vault.decrypt(before, place=place)
            renewed[name] = (before, self._vault.encrypt(opened, place=place))

        def edit(current: pb.Project) -> None:
            client = _client(current.sso)
            for name, (before, after) in renewed.items():
                if getattr(client, name) == before:
                    setattr(client, name, after)

        return edit


def list_closed(project: pb.Project) -> list[str]:
    """Returns the encrypted secrets of a project."""
    client = _client(project.sso) if project.HasField("sso") else None
    texts = [getattr(client, name) for name in SECRETS] if client else []
    return list(filter(is_encrypted, texts))


def _clear_others(sso: pb.ProjectSSOConfig, section: Section) -> None:
    sso.ClearField("google")
    sso.ClearField("github" if section == "oidc" else "oidc")


def _section(sso: pb.ProjectSSOConfig) -> Section:
    return "oidc" if sso.provider == pb.ProjectSSOConfig.OIDC else "github"


def _client(sso: pb.ProjectSSOConfig) -> pb.ProjectSSOConfig.GitHub | pb.ProjectSSOConfig.Oidc:
    return sso.oidc if sso.provider == pb.ProjectSSOConfig.OIDC else sso.github


def _differ(one: Message, other: Message, name: str) -> bool:
    return bool(getattr(one, name) != getattr(other, name))


def _place(project_id: str, name: str) -> str:
    return f"project/{project_id}/sso/{name}"
