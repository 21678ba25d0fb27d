# SPDX-License-Identifier: Apache-2.0
"""Plans and applies in a stage. An apply outlives this process, and is begun at most once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipecd_plugin_terraform import saved_plan
from pipecd_plugin_terraform.command import PlannedChanges, Terraform
from pipecd_plugin_terraform.config import TerraformPluginConfig
from pipecd_plugin_terraform.masking import Mask
from pipecd_plugin_terraform.messages import MessageReader, explain
from pipecd_plugin_terraform.program import TerraformPrograms
from pipecd_plugin_terraform.source import Configuration, choose_target
from pipecd_sdk import DISPLAY_KEY, Exit, Outcome, Source, StageContext, StageFailedError
from pipecd_sdk.scripts.environment import locate_scripts
from pipecd_sdk.scripts.once import ROLLBACK_PREFIX, StageScript
from pipecd_sdk.scripts.shim_client import SCRIPT_ID, Script

APPLIED: Final = "apply-started"
"""Of the deployment's metadata: something may have been applied."""


class NothingToApplyError(Exception):
    """A plan without changes."""


class InterruptedApplyError(StageFailedError):
    """Nobody knows how far an apply came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerraformStage:
    """One run of a stage."""

    ctx: StageContext
    config: TerraformPluginConfig
    programs: TerraformPrograms

    async def plan(self, *, exits: bool) -> Outcome | None:
        """TERRAFORM_PLAN: makes a plan, shows it, and saves it."""
        ctx = self.ctx
        terraform = await self._open(ctx.source.target)
        planned = await self._plan(terraform, saved_plan.plan_file(ctx))
        changes = planned.changes
        saved = await saved_plan.save(
            ctx, planned.file, summary=changes.summary, is_empty=changes.is_empty
        )
        await ctx.metadata.put(DISPLAY_KEY, changes.summary)
        if changes.is_empty and exits:
            ctx.log.success("No changes: the deployment ends here")
            return Exit
        ctx.log.success("Saved %s", saved)
        return None

    async def apply(self, *, uses_saved: bool) -> None:
        """TERRAFORM_APPLY and TERRAFORM_SYNC: applies the saved plan, or one that is made now."""
        saved = await saved_plan.load(self.ctx) if uses_saved else None
        if saved is None:
            await self._apply(self.ctx.source.target, self._make_plan)
            return

        async def take(_: Terraform) -> Path:
            self.ctx.log.info("Applying %s", saved)
            if saved.is_empty:
                raise NothingToApplyError
            return await saved_plan.find_file(self.ctx, saved)

        await self._apply(self.ctx.source.target, take)

    async def roll_back(self) -> None:
        """TERRAFORM_ROLLBACK: applies the configuration of the running commit."""
        ctx = self.ctx
        await self._script(MessageReader(), ROLLBACK_PREFIX).end_others()
        if await ctx.deployment_metadata.get(APPLIED) is None:
            ctx.log.info("Nothing had been applied: there is nothing to roll back")
            return
        if ctx.source.running is None:
            raise StageFailedError(
                "there is no commit to go back to: this was the first deployment",
                hint="what it has made is still there; correct the configuration and deploy again",
            )
        ctx.log.info("Rolling back to %s", ctx.source.running.commit_hash[:7])
        await self._apply(ctx.source.running, self._make_plan, prefix=ROLLBACK_PREFIX)

    async def _open(self, source: Source) -> Terraform:
        ctx = self.ctx
        configuration = Configuration.open(source, choose_target(ctx.targets))

        settings = await configuration.settings(self._expand)
        options = configuration.options
        program = await self.programs.find(
            self.config.program, options.terraform_version, ctx.tools
        )
        ctx.log.info("%s %s", self.config.program, self.programs.version_of(program))
        terraform = Terraform(
            program, configuration.folder.path, settings, name=self.config.program
        )
        await terraform.prepare(ctx.log)
        return terraform

    async def _expand(self, text: str) -> str:
        return (await self.ctx.secrets.expand_variable(text)).text

    async def _find_mask(self, source: Source) -> Mask:
        """Returns the mask of what is secret, also for an apply that is only followed."""
        configuration = Configuration.open(source, choose_target(self.ctx.targets))
        try:
            return (await configuration.settings(self._expand)).mask
        except StageFailedError:
            return configuration.target_mask()  # the reason stands where it is opened to be run

    async def _plan(self, terraform: Terraform, file: Path) -> PlannedChanges:
        planned = await terraform.plan(file, self.ctx.log)
        if shown := planned.changes.render():
            await self.ctx.log.write(shown)
        return planned

    async def _make_plan(self, terraform: Terraform) -> Path:
        planned = await self._plan(terraform, saved_plan.plan_file(self.ctx))
        await self.ctx.metadata.put(DISPLAY_KEY, planned.changes.summary)
        if planned.changes.is_empty:
            raise NothingToApplyError
        return planned.file

    async def _apply(
        self,
        source: Source,
        choose_plan: Callable[[Terraform], Awaitable[Path]],
        *,
        prefix: str = "",
    ) -> None:
        ctx = self.ctx
        reader = MessageReader(mask=await self._find_mask(source))
        script = self._script(reader, prefix)

        async def prepare() -> Callable[[str], Script]:
            if script.has_started():
                ctx.log.info("%s apply was begun by an earlier process", self.config.program)
                return self._follow_only
            terraform = await self._open(source)
            plan = await choose_plan(terraform)
            timeout = source.options.lock_timeout
            await ctx.deployment_metadata.put(APPLIED, ctx.stage.id)
            return lambda token: Script(
                text=terraform.apply_text(plan, lock_timeout=timeout),
                directory=terraform.directory,
                environment={**terraform.environment("apply"), SCRIPT_ID: token},
                token=token,
                kill_grace_seconds=self.config.kill_grace.total_seconds(),
                is_interrupted=True,
                is_login=False,
            )

        try:
            ended = await script.run(prepare)
        except NothingToApplyError:
            ctx.log.success("No changes: there is nothing to apply")
            return
        except InterruptedApplyError as error:
            raise await self._name_lock(error, source) from None
        await asyncio.to_thread(_forget_plan, saved_plan.plan_file(ctx))
        if ended.code != 0:
            failure = explain(f"{self.config.program} apply", reader.errors, exit_code=ended.code)
            # Ended by a signal, it could not release its lock.
            raise await self._name_lock(failure, source) if ended.code < 0 else failure
        ctx.log.success("Applied")

    def _script(self, reader: MessageReader, prefix: str) -> StageScript:
        name = self.config.program
        return StageScript(
            ctx=self.ctx,
            scripts=locate_scripts(),
            prefix=prefix,
            kill_grace_seconds=self.config.kill_grace.total_seconds(),
            heading=[f"{name} apply"],
            continue_interrupted=self._refuse_again,
            is_interrupted=True,
            what=f"{name} apply",
            translate=reader.translate,
        )

    def _follow_only(self, token: str) -> Script:
        """Returns what stands for a script that was started already: it is followed, not run."""
        return Script(
            text="exit 1\n",
            directory=Path("/"),
            environment={SCRIPT_ID: token},
            token=token,
            kill_grace_seconds=self.config.kill_grace.total_seconds(),
            is_interrupted=True,
            is_login=False,
        )

    def _refuse_again(self) -> None:
        raise InterruptedApplyError(
            f"{self.config.program} apply was interrupted: nobody knows how far it came, and it is "
            "not run again",
            hint="compare a new plan with what is there, then deploy again",
        )

    async def _name_lock(self, error: StageFailedError, source: Source) -> StageFailedError:
        """Returns the error, with the lock that the interrupted apply has left, if it has."""
        file = saved_plan.plans_folder(self.ctx) / "probe.tfplan"
        try:
            terraform = await self._open(source)
            await terraform.plan(file, None, lock=True, refresh=False)
        except StageFailedError as found:
            hint = ". ".join(each for each in (error.hint, found.hint) if each)
            return InterruptedApplyError(f"{error}; {found}", hint=hint)
        finally:
            await asyncio.to_thread(_forget_plan, file)
        self.ctx.log.info("The state is not locked")
        return error


def _forget_plan(file: Path) -> None:
    """Removes a plan that was applied, or was made only to be applied here."""
    file.unlink(missing_ok=True)
