# SPDX-License-Identifier: Apache-2.0
"""A lab for the plugin `terraform`: folders, a state outside of them, a real program."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipecd_plugin_terraform.plugin import TerraformPlugin

from pipecd_sdk.testing import StageHarness, deploy_target
from pipecd_test_support.terraform_program import find_terraform

BACKEND = 'terraform {\n  backend "local" {}\n}\n'
QUIET = {"TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}


def data(name: str = "one", value: str = '"v1"', *, run: str = "") -> str:
    """The text of a resource that needs no provider; `run` is a command of its creation."""
    command = json.dumps(run)
    provisioner = f'  provisioner "local-exec" {{\n    command = {command}\n  }}\n' if run else ""
    return (
        f'resource "terraform_data" "{name}" {{\n'
        f"  input = {value}\n  triggers_replace = {value}\n{provisioner}}}\n"
    )


class TerraformLab:
    """Folders for one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state" / "terraform.tfstate"

    @property
    def target(self) -> dict[str, Any]:
        """The options of a deploy target whose state outlives the files of a commit."""
        return {"backendConfig": [f"path={self.state}", f"workspace_dir={self.state.parent}"]}

    def write(self, name: str, text: str, **others: str) -> Path:
        """Writes an application's folder and returns it."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "main.tf").write_text(BACKEND + text)
        for file, content in others.items():
            (folder / file.replace("__", ".")).write_text(content)
        return folder

    def harness(
        self,
        directory: Path,
        *,
        options: Mapping[str, Any] | None = None,
        target: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> StageHarness[TerraformPlugin]:
        """Returns a harness for a folder."""
        plugin = TerraformPlugin()
        chosen = deploy_target(plugin, "dev", {**self.target, **(target or {})})
        return StageHarness(
            plugin,
            directory=directory,
            options=options or {},
            targets=[chosen],
            config={"killGrace": "20s", **(config or {})},
            **more,
        )

    def values(self, workspace: str = "") -> dict[str, Any]:
        """What is in the state: the input of each resource by its address."""
        file = self.state.parent / workspace / "terraform.tfstate" if workspace else self.state
        if not file.exists():
            return {}
        found = {}
        for resource in json.loads(file.read_text())["resources"]:
            module = f"{resource['module']}." if "module" in resource else ""
            for instance in resource["instances"]:
                key = f"[{json.dumps(instance['index_key'])}]" if "index_key" in instance else ""
                address = f"{module}{resource['type']}.{resource['name']}{key}"
                found[address] = instance["attributes"]["input"]["value"]
        return found

    def is_locked(self) -> bool:
        """Returns whether somebody holds the lock of the state."""
        return self.state.with_name(f".{self.state.name}.lock.info").exists()


def use_terraform(folder: Path, environment: dict[str, str]) -> bool:
    """Puts a real Terraform on the PATH of an environment; returns whether there is one."""
    found = find_terraform(folder)
    if found is None:
        return False
    environment["PATH"] = f"{found.parent}{os.pathsep}{environment.get('PATH', '')}"
    environment.update(QUIET)
    return True
