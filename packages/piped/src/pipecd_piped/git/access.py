# SPDX-License-Identifier: Apache-2.0
"""How git authenticates: a password for HTTPS, a key for SSH.

Neither is ever an argument of a process, and nothing of the user's own `.ssh` is changed: the key
is copied (ssh insists on its mode) and an ssh configuration of our own stands before the user's.
"""

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipecd_model.config import GitConfig
from pipecd_piped.git.errors import GitError
from pipecd_runtime.git_remote import (
    UserAndPassword,
    make_credential_settings,
    split_credentials,
)

# No prompts, and a host that is gone is noticed.
_SSH_OPTIONS: Final = (
    *("-o", "BatchMode=yes"),
    *("-o", "ConnectTimeout=15"),
    *("-o", "ServerAliveInterval=15"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAccess:
    """What git needs to reach a remote: the address, settings, and environment variables."""

    address: str
    settings: dict[str, str] = field(default_factory=dict, repr=False)
    variables: dict[str, str] = field(default_factory=dict, repr=False)


class Credentials:
    """The piped's credentials for git, from `spec.git`."""

    def __init__(self, config: GitConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._ssh = ["ssh", *_SSH_OPTIONS]

    def prepare(self) -> None:
        """Write the key and the configuration that ssh needs, if a key is configured."""
        config = self._config
        if not (config.ssh_key_file or config.ssh_key_data):
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = self._folder / "key"
        _write_private(key, self._key())
        _write_private(self._folder / "config", self._ssh_config(key).encode())
        self._ssh = ["ssh", "-F", str(self._folder / "config"), *_SSH_OPTIONS]

    def for_remote(self, remote: str) -> RemoteAccess:
        """Returns the address and credentials for a remote."""
        variables = {"GIT_SSH_COMMAND": shlex.join(self._ssh)}
        address, given = split_credentials(remote)
        if not address.startswith(("http://", "https://")):
            return RemoteAccess(address=address, variables=variables)
        if given is None and self._config.password:
            password = self._config.password.decode().decode(errors="replace").strip()
            given = UserAndPassword(self._config.username, password) if password else None
        settings = make_credential_settings(address, given) if given is not None else {}
        return RemoteAccess(address=address, settings=settings, variables=variables)

    def _key(self) -> bytes:
        if self._config.ssh_key_data:
            data = self._config.ssh_key_data.decode()
        else:
            try:
                data = Path(self._config.ssh_key_file).read_bytes()
            except OSError as error:
                raise GitError(
                    f"cannot read the ssh key {self._config.ssh_key_file!r}: {error.strerror}",
                    hint="check git.sshKeyFile in the piped config",
                ) from None
        return data if data.endswith(b"\n") else data + b"\n"  # ssh refuses a cut last line

    def _ssh_config(self, key: Path) -> str:
        config = self._config
        users = config.ssh_config_file_path or str(Path.home() / ".ssh" / "config")
        lines = [
            f"Host {config.host}",
            f"  HostName {config.host_name or config.host}",
            "Host *",
            f'  IdentityFile "{key}"',
            "  IdentitiesOnly yes",
            f'  UserKnownHostsFile "{self._folder / "known_hosts"}" ~/.ssh/known_hosts',
            "  StrictHostKeyChecking accept-new",  # trusted on first use only
            f'Include "{users}"' if Path(users).is_file() else "",
        ]
        return "\n".join(lines) + "\n"


def _write_private(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
