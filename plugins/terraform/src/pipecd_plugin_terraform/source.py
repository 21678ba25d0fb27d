# SPDX-License-Identifier: Apache-2.0
"""What the commands for a commit are run with: of its options, its deploy target, its folder."""

import dataclasses
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipecd_plugin_terraform.command import CommandSettings
from pipecd_plugin_terraform.config import CommandEnvs, TerraformOptions, TerraformTarget
from pipecd_plugin_terraform.flags import iter_named_files, read_flags_of_variable, split_planning
from pipecd_plugin_terraform.masking import Mask, find_secret_values
from pipecd_sdk import DeployTarget, Source, StageFailedError, TargetError, replace
from pipecd_sdk.repository import Folder
from pipecd_sdk.scripts.environment import choose_environment, operator_environment

_SECRET: Final = re.compile(r"\{\{[^{}]*\.encryptedSecrets\b")
"""Also one that is named by `index`, as names with a dash must be."""
_PREVIEW_NAMES: Final = (
    *("PATH", "LANG", "LC_", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("TF_PLUGIN_CACHE_DIR", "TF_CLI_CONFIG_FILE"),
)
"""What a preview gets of piped's environment: no credentials."""
_LARGEST_ENV_FILE: Final = 1024 * 1024

Expand = Callable[[str], Awaitable[str]]
"""Puts the values of secrets into a text that names them."""


def has_secret_variables(options: TerraformOptions) -> bool:
    """Returns whether the variables name a secret: its value may stand anywhere in the state."""
    return any(_SECRET.search(each) for each in options.vars)


async def expand_nothing(text: str) -> str:
    """Returns the text; raises TargetError for one that names a secret."""
    if _SECRET.search(text):
        raise TargetError(
            "the variables name a secret, which is opened for stages only: nothing can be planned",
            hint="put the secret into a file with spec.encryption.decryptionTargets, and name that "
            "file in varFiles",
        )
    return text


def choose_target(targets: Sequence[DeployTarget]) -> DeployTarget:
    """Returns the only deploy target. Raises StageFailedError when there are several."""
    if len(targets) != 1:
        names = ", ".join(each.name for each in targets)
        raise StageFailedError(
            f"a Terraform application has one deploy target, and this one has {len(targets)}: "
            f"{names}",
            hint="make an application for each",
        )
    return targets[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A commit's configuration, and where it is deployed."""

    folder: Folder
    options: TerraformOptions
    target: TerraformTarget

    @classmethod
    def open(cls, source: Source, target: DeployTarget) -> "Configuration":
        """Returns the configuration of a commit. Raises StageFailedError, ConfigError."""
        return cls(folder=Folder.open(source), options=source.options, target=target.config)

    async def settings(self, expand: Expand) -> CommandSettings:
        """Returns what its commands are run with. Raises StageFailedError."""
        own = _pairs(self.target.envs)
        return await self._settings(operator_environment() | own, own, expand)

    async def reading_settings(self) -> CommandSettings:
        """Returns the same for commands that only read the state, and open no secrets.

        Of the variables they need none: those that name a secret are left out.
        """
        named = tuple(each for each in self.options.vars if not _SECRET.search(each))
        options = replace(self.options, vars=named)
        return await dataclasses.replace(self, options=options).settings(expand_nothing)

    def target_mask(self) -> Mask:
        """Returns the mask of the deploy target's own secrets."""
        return Mask(find_secret_values(_pairs(self.target.envs)))

    async def preview_settings(self, home: Path) -> CommandSettings:
        """Returns the same for a preview: with its own credentials, and with no others."""
        allowed = self.target.plan_preview
        own = _read_env_file(allowed.env_file) | _pairs(allowed.envs)
        base = choose_environment(_PREVIEW_NAMES) | {"HOME": str(home)}
        return await self._settings(base | own, own, expand_nothing)

    async def _settings(
        self, environment: Mapping[str, str], own: Mapping[str, str], expand: Expand
    ) -> CommandSettings:
        """`own`: the variables of the operator, among which are credentials."""
        options = self.options
        flags = options.command_flags
        for file in options.var_files:
            self.folder.resolve(file, "the file of variables")
        for file, what in iter_named_files(flags.list_all()):
            self.folder.resolve(file, what)
        opened: list[str] = []

        async def open_pair(text: str) -> str:
            found = await expand(text)
            if _SECRET.search(text):
                opened.append(found.partition("=")[2])
            return found

        shared = await _expand_pairs(options.command_envs.shared, open_pair)
        environments = await _expand_envs(options.command_envs, open_pair)
        for pairs in (shared, *environments.values()):
            self._check_files_of_variables(pairs)
        variables = [f"-var={await open_pair(each)}" for each in options.vars]
        return CommandSettings(
            environment={**environment, **shared},
            environments=environments,
            arguments=self._arguments(variables),
            workspace=options.workspace,
            creates_workspace=options.create_workspace,
            mask=Mask([*opened, *find_secret_values({**own, **shared})]),
        )

    def _check_files_of_variables(self, variables: Mapping[str, str]) -> None:
        """Raises StageFailedError where TF_CLI_ARGS names a file out of the repository."""
        for name, value in variables.items():
            for file, what in iter_named_files(read_flags_of_variable(name, value)):
                self.folder.resolve(file, what)

    def _arguments(self, own_vars: Sequence[str]) -> dict[str, list[str]]:
        flags, target = self.options.command_flags, self.target
        variables = [
            *(f"-var={each}" for each in target.vars),
            *(f"-var-file={each}" for each in target.var_files),
            *own_vars,
            *(f"-var-file={each}" for each in self.options.var_files),
        ]
        planning, others = split_planning([*flags.shared, *flags.apply])
        shared_planning, _ = split_planning(flags.shared)
        apply_planning = planning[len(shared_planning) :]
        return {
            "init": [
                *variables,
                *(f"-backend-config={each}" for each in target.backend_config),
                *flags.shared,
                *flags.init,
            ],
            "plan": [*variables, *flags.shared, *flags.plan, *apply_planning],
            "apply": others,
        }


async def _expand_envs(given: CommandEnvs, expand: Expand) -> dict[str, dict[str, str]]:
    commands = {"init": given.init, "plan": given.plan, "apply": given.apply}
    return {name: await _expand_pairs(pairs, expand) for name, pairs in commands.items()}


async def _expand_pairs(given: Sequence[str], expand: Expand) -> dict[str, str]:
    return _pairs([await expand(each) for each in given])


def _pairs(given: Sequence[str]) -> dict[str, str]:
    return dict(each.split("=", 1) for each in given)


def _read_env_file(name: str) -> dict[str, str]:
    """Returns the variables of a file of the operator. Raises TargetError; shows no values."""
    if not name:
        return {}
    try:
        with Path(name).open(encoding="utf-8") as file:
            text = file.read(_LARGEST_ENV_FILE)
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"planPreview.envFile {name!r} cannot be read: {error}") from error
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.removeprefix("export ") for line in lines if line and not line.startswith("#")]
    if any("=" not in each for each in pairs):
        raise TargetError(f"planPreview.envFile {name!r} has a line that is not KEY=value")
    return _pairs(pairs)
