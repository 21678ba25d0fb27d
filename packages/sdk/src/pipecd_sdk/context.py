# SPDX-License-Identifier: Apache-2.0
"""What a handler is given: the deployment, the stage, the files, and the ways to talk back.

Values only. They are filled from the wire by `_glue.messages`, or by `testing`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec

from pipecd_sdk.clock import Clock
from pipecd_sdk.metadata import Metadata
from pipecd_sdk.results import StageFailedError
from pipecd_sdk.secrets import Secrets, refuse
from pipecd_sdk.shared import SharedObjects
from pipecd_sdk.stage_log import StageLog
from pipecd_sdk.tools import Tools


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that a deployment deploys.

    Example:
        ctx.log.info("%s by %s", ctx.deployment.commit.hash, ctx.deployment.commit.author)
    """

    hash: str
    message: str
    author: str
    branch: str
    url: str = ""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment: a run that brings an application to a commit.

    Example:
        ctx.log.info("deploying %s", ctx.deployment.application_name)
    """

    id: str
    application_id: str
    application_name: str
    project_id: str
    piped_id: str
    commit: Commit
    created_at: datetime
    commander: str = ""
    """Who asked for it; empty when piped started it by itself."""
    repository_url: str = ""
    summary: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    running_commit: str = ""
    """The commit that was deployed last; empty on a first deployment."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """The stage that runs.

    Example:
        key = f"started-{ctx.stage.index}"
    """

    id: str
    name: str
    index: int
    """Its place in the pipeline, from 0; a rollback stage has that of the stage it belongs to."""
    rollback: bool = False
    retried_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The files of one commit.

    Example:
        manifest = (ctx.source.target.directory / "app.yaml").read_text()
    """

    commit_hash: str = ""
    application_directory: str = ""
    config_filename: str = ""
    config: bytes = b""
    """The application file as it is in that commit."""
    shared_config_directory: str = ""
    read_options: Callable[[], Any] = field(default=lambda: None, repr=False, compare=False)

    @property
    def options(self) -> Any:
        """Returns the plugin's part of the application file, of its `application_config` type.

        Raises ConfigError when it is wrong: the handler fails, and the author of the file sees why.
        """
        return self.read_options()

    @property
    def directory(self) -> Path:
        """Returns the application's folder. Raises StageFailedError when piped sent no files."""
        if not self.application_directory:
            raise StageFailedError(
                "piped sent no files for this stage",
                hint="the stage is declared with needs_files=False",
            )
        return Path(self.application_directory)


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The files to deploy, and those that were deployed last.

    Example:
        if ctx.source.running is None:
            ctx.log.info("this is the first deployment")
    """

    target: Source
    running: Source | None = None
    """None on a first deployment."""


class DeployTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One deploy target of the piped file.

    Example:
        path = Path(target.config.path)
    """

    name: str
    labels: Mapping[str, str]
    config: Any
    """Of the plugin's `target_config` type."""


class CommandKind(IntEnum):
    """The kind of a command that a person sends to a stage, with the numbers of the wire.

    Example:
        if command.kind is CommandKind.APPROVE: ...
    """

    APPROVE = 3
    SKIP = 6


class StageCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command that a person sent to the running stage.

    Example:
        async for command in ctx.commands:
            ctx.log.info("%s by %s", command.kind.name, command.commander)
    """

    id: str
    kind: CommandKind
    commander: str


class PlanContext(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of planning, before a stage runs.

    Example:
        async def versions(self, ctx: PlanContext) -> Sequence[Version]:
            return [Version(name="shop", version=ctx.deployment.commit.hash[:7])]
    """

    deployment: Deployment
    source: Sources
    targets: Sequence[DeployTarget]
    tools: Tools
    """Programs, installed by piped."""


class StageContext(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a stage's handler, and its connections to piped.

    Example:
        async def wait(self, ctx: StageContext, config: WaitConfig) -> None:
            ctx.log.info("deploying %s", ctx.deployment.commit.hash)
    """

    deployment: Deployment
    stage: Stage
    source: Sources
    targets: Sequence[DeployTarget]
    log: StageLog
    metadata: Metadata
    """Of this stage."""
    deployment_metadata: Metadata
    """Of this plugin in this deployment: one stage writes it, a later one reads it."""
    commands: AsyncIterator[StageCommand]
    """What people ask of this stage, each command once, those from before a restart first."""
    clock: Clock
    tools: Tools
    """Programs, installed by piped."""
    shared: SharedObjects
    """Of this plugin and this application, also between deployments."""
    deployment_shared: Callable[[str], Awaitable[str | None]]
    """What piped itself keeps with the deployment: the value of a key, None when it has none."""
    secrets: Secrets = msgspec.field(default_factory=lambda: Secrets(refuse))
    """Those of the application, opened when a stage names them."""
    quick_sync: bool = False
    """No pipeline was written: there are no options for this stage."""
    is_handed_over: Callable[[], bool] = lambda: False
    """Returns whether the handler was cancelled because the next process continues the stage.

    Then what it has started outside may go on; after any other cancellation it must end.
    """
    is_ending: Callable[[], bool] = lambda: False
    """Returns whether the process is about to end: a cancelled handler must be quick then."""
