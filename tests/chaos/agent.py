# SPDX-License-Identifier: Apache-2.0
"""A piped of a site: its program, its data folder, its plugins and its applications."""

from collections.abc import Iterable
from pathlib import Path

from chaos import foreign
from chaos.kept import Kept
from chaos.schedule import ALL_PLUGINS
from pipecd_test_support.balancer import Balancer
from pipecd_wire.apiservice.service_pb2 import RegisterPipedResponse


class Agent:
    """One of them; the first has all plugins, and the applications that no other one has."""

    def __init__(
        self,
        root: Path,
        name: str,
        environment: dict[str, str],
        *,
        plugins: Iterable[str] = ALL_PLUGINS,
        applications: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.plugins = tuple(plugins)
        self.applications = frozenset(applications)
        self.scripts = root / name / "scripts"
        self.trees = root / name / "trees"
        self.wire = Balancer()
        """Between it and the control planes."""
        self.id = ""
        self._root = root
        run = ["piped", "run", "--config-file", str(root / f"{name}.yaml"), "--insecure"]
        run += ["--data-dir", str(root / name)]
        self.kept = Kept(name, run, root / f"{name}.log", environment)

    def configure(self, made: RegisterPipedResponse, repository: Path) -> None:
        """Write its configuration."""
        self.id = made.id
        key = self._root / f"{self.name}.key"
        key.write_text(made.key)
        ours = [each for each in self.plugins if each != foreign.PLUGIN]
        plugins = "".join(f"    - name: {each}\n" for each in ours)
        if foreign.PLUGIN in self.plugins:
            plugins += foreign.configuration(self._root)
        (self._root / f"{self.name}.yaml").write_text(
            "apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec:\n  projectID: default\n"
            f"  pipedID: {made.id}\n  pipedKeyFile: {key}\n"
            f"  apiAddress: {self.wire.address}\n  repositories:\n    - repoId: chaos\n"
            f"      remote: {repository}\n      branch: main\n  plugins:\n{plugins}"
        )
