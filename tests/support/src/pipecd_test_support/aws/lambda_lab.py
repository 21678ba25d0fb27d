# SPDX-License-Identifier: Apache-2.0
"""One function on a server of `aws.server`: its manifests, deployments of it, and its state."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pipecd_plugin_lambda.plugin import Lambda

from pipecd_sdk import Commit, StageResult, replace
from pipecd_sdk.testing import FakeClock, StageHarness, deploy_target, example_deployment
from pipecd_test_support.aws.lab import AwsLab

Object = dict[str, Any]
ROLE: Final = "arn:aws:iam::123456789012:role/function"
_numbers = itertools.count(1)
_SHOWN: Final = (
    *("Architectures", "CodeSha256", "DeadLetterConfig", "Description", "Environment", "Handler"),
    *("EphemeralStorage", "LoggingConfig", "MemorySize", "Role", "Runtime", "Timeout"),
    *("TracingConfig", "VpcConfig"),
)


def make_hash(commit: str) -> str:
    """Returns the hash of a commit that a test names."""
    return (commit.encode().hex() + "0" * 40)[:40]


def make_role(aws: AwsLab) -> None:
    """Makes the role that functions have; moto wants it to be there."""
    trust = {"Version": "2012-10-17", "Statement": []}
    aws.make_client("iam").create_role(
        RoleName="function", AssumeRolePolicyDocument=json.dumps(trust)
    )


class LambdaLab:
    """One function, by a name of its own."""

    def __init__(self, aws: AwsLab, folder: Path) -> None:
        self.aws = aws
        self.folder = folder
        self.name = f"shop-{next(_numbers)}"
        self.client = aws.make_client("lambda")
        self._deployments = itertools.count(1)
        self.running: str | None = None
        self.running_options: Mapping[str, Any] | None = None
        """The options of the commit that runs; None when they are those of the next one."""

    def write(self, commit: str, **spec: Any) -> Path:
        """Writes the manifest of a commit; an image unless it says something else."""
        folder = self.folder / commit
        folder.mkdir(parents=True, exist_ok=True)
        code = {} if {"s3Bucket", "source"} & spec.keys() else {"image": f"shop:{commit}"}
        body = {
            "apiVersion": "pipecd.dev/v1beta1",
            "kind": "LambdaFunction",
            "spec": {"name": self.name, "role": ROLE, "memory": 128, "timeout": 5, **code, **spec},
        }
        (folder / "function.yaml").write_text(json.dumps(body))
        return folder

    def deploy(
        self,
        commit: str,
        *,
        options: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> StageHarness[Lambda]:
        """Returns a deployment of a commit whose manifest was written."""
        number = next(self._deployments)
        deployment = replace(
            example_deployment(),
            id=f"{self.name}-deployment-{number}",
            commit=Commit(hash=make_hash(commit), message="m", author="a", branch="main"),
            running_commit=make_hash(self.running) if self.running else "",
        )
        plugin = Lambda()
        plugin.accounts = self.aws.accounts
        return StageHarness(
            plugin,
            clock=FakeClock(),
            config=config,
            deployment=deployment,
            directory=self.folder / commit,
            running_directory=self.folder / self.running if self.running else None,
            options=options,
            running_options=self.running_options,
            targets=[deploy_target(plugin, "main", self.aws.target)],
        )

    async def sync(self, commit: str, **spec: Any) -> None:
        """Deploys a commit and has it be the one that runs."""
        self.write(commit, **spec)
        result = await self.deploy(commit).run("LAMBDA_SYNC")
        assert result.status.name == "SUCCESS", result
        self.running = commit

    def read_state(self, alias: str = "Service") -> Object:
        """Returns what callers and operators see: function, alias, tags."""
        found = self.client.get_function(FunctionName=self.name)
        configuration = found["Configuration"]
        return {
            "configuration": {key: configuration.get(key) for key in _SHOWN},
            "image": found.get("Code", {}).get("ImageUri"),
            "tags": found.get("Tags", {}),
            "alias": self.read_alias(alias),
        }

    def read_alias(self, alias: str = "Service") -> dict[str, float]:
        """Returns the shares of the versions."""
        try:
            found = self.client.get_alias(FunctionName=self.name, Name=alias)
        except self.client.exceptions.ResourceNotFoundException:
            return {}
        weights = (found.get("RoutingConfig") or {}).get("AdditionalVersionWeights") or {}
        rest = round(1 - sum(weights.values()), 4)
        return {found["FunctionVersion"]: rest, **weights}

    def list_versions(self) -> list[str]:
        """Returns the published versions."""
        found = self.client.list_versions_by_function(FunctionName=self.name)["Versions"]
        return [each["Version"] for each in found if each["Version"] != "$LATEST"]


def succeeded(result: StageResult) -> bool:
    """Returns whether a stage ended well."""
    return result.status.name == "SUCCESS"
