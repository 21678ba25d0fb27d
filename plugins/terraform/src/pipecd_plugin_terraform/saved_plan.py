# SPDX-License-Identifier: Apache-2.0
"""The plan that TERRAFORM_PLAN saves and TERRAFORM_APPLY applies, exactly that one.

A plan has secrets in it. It stays on this machine, in the folder of the deployment's records, which
piped removes when the deployment is over; its name and its digest are kept with the deployment.
"""

import asyncio
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pipecd_sdk import StageContext, StageFailedError
from pipecd_sdk.kit.script_records import find_deployment_folder, to_folder_name
from pipecd_sdk.scripts.environment import locate_scripts

KEY: Final = "saved-plan"
"""Of the deployment's metadata."""
FOLDER: Final = "terraform-plans"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """A plan that was saved."""

    file: str
    """Its name."""
    sha256: str
    summary: str
    is_empty: bool

    def __str__(self) -> str:
        return f"plan {self.sha256[:12]}: {self.summary}"


def plans_folder(ctx: StageContext) -> Path:
    """Returns the folder of a deployment's plans, which it makes. Raises StageFailedError."""
    folder = find_deployment_folder(locate_scripts(), ctx.deployment.id) / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StageFailedError(f"the plan cannot be saved: {error}") from error
    return folder


def plan_file(ctx: StageContext) -> Path:
    """Returns the file for the plan that a stage makes."""
    name = to_folder_name(ctx.stage.id)
    return plans_folder(ctx) / f"{name}-{ctx.stage.retried_count}.tfplan"


async def save(ctx: StageContext, file: Path, *, summary: str, is_empty: bool) -> SavedPlan:
    """Keeps the name and the digest of a plan with the deployment."""
    saved = SavedPlan(
        file=file.name,
        sha256=await asyncio.to_thread(_digest, file),
        summary=summary,
        is_empty=is_empty,
    )
    await ctx.deployment_metadata.put(KEY, json.dumps(asdict(saved)))
    return saved


async def load(ctx: StageContext) -> SavedPlan | None:
    """Returns the plan that was saved last, None when the deployment has none."""
    text = await ctx.deployment_metadata.get(KEY)
    if not text:
        return None
    try:
        return SavedPlan(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise StageFailedError("the record of the saved plan cannot be read") from error


async def find_file(ctx: StageContext, saved: SavedPlan) -> Path:
    """Returns the file of a saved plan. Raises StageFailedError when it is not that plan."""
    file = plans_folder(ctx) / Path(saved.file).name
    try:
        digest = await asyncio.to_thread(_digest, file)
    except FileNotFoundError:
        raise StageFailedError(
            "the plan that was made is not on this machine any more, and no other one is applied",
            hint="piped's data folder was lost or is another one: deploy again",
        ) from None
    except OSError as error:
        raise StageFailedError(f"the saved plan cannot be read: {error}") from error
    if digest != saved.sha256:
        raise StageFailedError(
            "the saved plan is not the one that was made: its content has changed, so it is not "
            "applied",
            hint="find out who writes to piped's data folder, then deploy again",
        )
    return file


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
