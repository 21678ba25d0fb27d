# SPDX-License-Identifier: Apache-2.0
"""WAIT_APPROVAL: hold the pipeline until enough people have approved."""

import json
from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar, Final

from pipecd_sdk import (
    DISPLAY_KEY,
    CommandKind,
    Metadata,
    Operation,
    PlannedStage,
    RequestedStage,
    StageConfig,
    StageContext,
    StageFailedError,
    StagePlugin,
    serve,
    stage,
)
from pipecd_sdk.constraints import AtMostCount, InRange

APPROVED_USERS: Final = "pipecd/stage-approved-users"
"""Shown in notifications: names joined by a comma."""
EXACT_USERS: Final = "approvedUsers"
"""The same names as a JSON list: a name may have a comma in it, and must not count as two."""


class ApprovalConfig(StageConfig):
    """The options of WAIT_APPROVAL."""

    constraints: ClassVar = (
        InRange(key="minApproverNum", minimum=1, message="must be 1 or more: {value}"),
        AtMostCount(
            key="minApproverNum",
            of="approvers",
            message="{value} approvals are wanted from {count} approvers",
            hint="name more approvers, or ask for fewer approvals",
        ),
    )

    approvers: tuple[str, ...] = ()
    """Who may approve; none named means everybody who may deploy."""
    min_approver_num: int = 1
    """How many different people must approve."""
    exclude_author: bool = False
    """Does the author of the commit not count?"""


class WaitApproval(StagePlugin):
    """Counts the people who approve."""

    def plan(
        self, requested: Sequence[RequestedStage], *, rollback: bool
    ) -> Iterable[PlannedStage]:
        for each in requested:
            yield each.to_planned(operation=Operation.APPROVE, operators=each.config.approvers)

    @stage("WAIT_APPROVAL", needs_files=False)
    async def wait(self, ctx: StageContext, config: ApprovalConfig) -> None:
        author = _names_of(ctx.deployment.commit.author) if config.exclude_author else frozenset()
        _must_be_possible(config, author)
        approved = await _read_approvers(ctx.metadata)
        if approved:
            ctx.log.info("Approved so far by %s", ", ".join(approved))
        if (missing := config.min_approver_num - len(approved)) > 0:
            whom = ", ".join(config.approvers) or "anyone who may deploy"
            ctx.log.info("Waiting for %s from %s", _approvals(missing), whom)
            if author:
                ctx.log.info("The author of the commit, %s, does not count", _author(ctx))
            await self._collect(ctx, config, author, approved)
        ctx.log.success("Approved by %s", ", ".join(approved))

    async def _collect(
        self,
        ctx: StageContext,
        config: ApprovalConfig,
        author: Collection[str],
        approved: list[str],
    ) -> None:
        """Adds to `approved` until there are enough; an approval is stored before it counts."""
        async for command in ctx.commands:
            if command.kind is not CommandKind.APPROVE or command.commander in approved:
                continue
            if refusal := _refusal(command.commander, config, author):
                ctx.log.info("%s", refusal)
                continue
            approved.append(command.commander)
            missing = config.min_approver_num - len(approved)
            await _keep_users(ctx.metadata, approved, missing)
            if missing <= 0:
                return
            ctx.log.info(
                "Approved by %s; %s needed", command.commander, _approvals(missing, "more")
            )


def _refusal(commander: str, config: ApprovalConfig, author: Collection[str]) -> str:
    """Returns why the commander's approval does not count; empty when it does."""
    if commander.casefold() in author:
        return f"The approval of {commander} does not count: the author of the commit"
    if config.approvers and commander not in config.approvers:
        return f"The approval of {commander} does not count: not an approver"
    return ""


def _must_be_possible(config: ApprovalConfig, author: Collection[str]) -> None:
    """Fail now instead of waiting for approvals that can never come."""
    others = {name for name in config.approvers if name.casefold() not in author}
    if config.approvers and len(others) < config.min_approver_num:
        raise StageFailedError(
            f"{_approvals(config.min_approver_num)} needed, and without the author of the commit"
            f" there are {len(others)} approvers",
            hint="name more approvers",
        )


def _author(ctx: StageContext) -> str:
    return ctx.deployment.commit.author


def _names_of(author: str) -> frozenset[str]:
    """All that the author of a commit may be called: `Name <mail>`, the name, the address."""
    name, _, mail = author.removesuffix(">").rpartition("<")
    return frozenset(each.strip().casefold() for each in (author, name, mail) if each.strip())


async def _read_approvers(metadata: Metadata) -> list[str]:
    if exact := await metadata.get(EXACT_USERS):
        users: list[str] = json.loads(exact)
        return users
    joined = await metadata.get(APPROVED_USERS)
    return joined.split(", ") if joined else []


async def _keep_users(metadata: Metadata, approved: Sequence[str], missing: int) -> None:
    names = ", ".join(approved)
    more = f"; {_approvals(missing, 'more')} needed" if missing > 0 else ""
    await metadata.put_many(
        {
            APPROVED_USERS: names,
            DISPLAY_KEY: f"Approved by {names}{more}",
            EXACT_USERS: json.dumps(list(approved)),
        }
    )


def _approvals(count: int, more: str = "") -> str:
    words = [str(count), more, "approval" if count == 1 else "approvals"]
    return " ".join(word for word in words if word)


def main() -> None:
    """Runs the executable `pipecd-plugin-waitapproval`."""
    serve(WaitApproval())


if __name__ == "__main__":
    main()
