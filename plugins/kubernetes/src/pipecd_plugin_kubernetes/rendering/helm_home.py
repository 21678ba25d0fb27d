# SPDX-License-Identifier: Apache-2.0
"""The folder in which helm keeps what it knows of chart repositories, for this plugin alone.

Passwords are in files of it that only we can read, never in arguments. It is kept while the plugin
runs, so that the index of a repository is fetched once, and removed when the plugin ends.
"""

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Final

from pipecd_plugin_kubernetes.config import KubernetesPluginConfig
from pipecd_plugin_kubernetes.rendering.programs import make_environment, run_program
from pipecd_plugin_kubernetes.rendering.scratch import KubernetesScratch
from pipecd_sdk.kit import yaml
from pipecd_sdk.kit.process import own, word


class HelmHome:
    """One folder for the repositories and registries of one configuration."""

    def __init__(self, config: KubernetesPluginConfig) -> None:
        self._folder = KubernetesScratch()
        self.path = self._folder.path
        self._updating = asyncio.Lock()
        self.updates = 0
        """How often the indexes were fetched."""
        self._write(config)

    @property
    def environment(self) -> dict[str, str]:
        """Returns the variables by which helm uses this folder and no other."""
        return make_environment(
            self.path,
            HELM_CACHE_HOME=str(self.path / "cache"),
            HELM_CONFIG_HOME=str(self.path / "config"),
            HELM_DATA_HOME=str(self.path / "data"),
            HELM_PLUGINS=str(self.path / "no-plugins"),
            HELM_REGISTRY_CONFIG=str(self.path / "registries.json"),
            HELM_REPOSITORY_CONFIG=str(self.path / "repositories.yaml"),
            HELM_REPOSITORY_CACHE=str(self.path / "indexes"),
        )

    async def update(self, helm: Path, repository: str, *, seen: int) -> None:
        """Fetches the index of a repository, unless somebody has since `seen` updates.

        Raises StageFailedError.
        """
        async with self._updating:
            if self.updates != seen:
                return
            await run_program(
                (word(helm), *own("repo", "update", "--"), word(repository)),
                f"fetching the index of the chart repository {repository!r}",
                cwd=self.path,
                env=self.environment,
            )
            self.updates += 1

    def has_index(self, repository: str) -> bool:
        """Returns whether the index of a repository is here."""
        return (self.path / "indexes" / f"{repository}-index.yaml").is_file()

    def close(self) -> None:
        """Removes the folder."""
        self._folder.close()

    def _write(self, config: KubernetesPluginConfig) -> None:
        repositories = [
            {
                "name": each.name,
                "url": each.address,
                "username": each.username,
                "password": each.password.reveal(),
                "insecure_skip_tls_verify": each.insecure,
                "pass_credentials_all": False,
            }
            for each in config.chart_repositories
            if each.type == "HTTP"
        ]
        listed = {"apiVersion": "v1", "generated": _LONG_AGO, "repositories": repositories}
        _write_private(self.path / "repositories.yaml", yaml.dump(listed))
        logins = {
            each.address.removeprefix("oci://").rstrip("/"): {
                "auth": _encode(f"{each.username}:{each.password.reveal()}")
            }
            for each in config.chart_registries
            if each.username
        }
        _write_private(self.path / "registries.json", json.dumps({"auths": logins}))


_LONG_AGO: Final = "0001-01-01T00:00:00Z"


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _write_private(path: Path, text: str) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w") as file:
        file.write(text)
