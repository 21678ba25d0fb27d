# SPDX-License-Identifier: Apache-2.0
"""`pipectl plan-preview`: what merging a branch would deploy and change, before it is merged."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from pipecd_model.errors import TimedOutError
from pipecd_pipectl.client import Client, idempotency_key, use_client
from pipecd_pipectl.lookup import find_piped_name
from pipecd_pipectl.options import DURATION
from pipecd_pipectl.output import color_option, echo
from pipecd_pipectl.progress import Progress, showing_progress
from pipecd_pipectl.times import format_duration
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model.common_pb2 import ApplicationKind, SyncStrategy
from pipecd_wire.model.planpreview_pb2 import (
    ApplicationPlanPreviewResult,
    PlanPreviewCommandResult,
    PluginPlanPreviewResult,
)
from pipecd_wire.rpc import CallError, call

PAUSE_SECONDS: Final = 0.5
"""Seconds between two looks for the answer."""

BEGIN, END = "---DETAILS_BEGIN---", "---DETAILS_END---"


@click.command("plan-preview")
@click.option("--repo-remote-url", required=True, help="The repository, as the piped has it.")
@click.option("--head-branch", required=True, help="The branch that would be merged.")
@click.option("--head-commit", required=True, help="Its commit.")
@click.option("--base-branch", required=True, help="The branch that the piped deploys from.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write JSON to this file."
)
@click.option("--timeout", type=DURATION, default="10m", show_default=True)
@click.option("--piped-handle-timeout", type=DURATION, default="5m", show_default=True)
@click.option("--sort-label-keys", default="", help="Labels to sort by, k,k; the name comes last.")
@color_option
@use_client
async def plan_preview(
    client: Client,
    *,
    repo_remote_url: str,
    head_branch: str,
    head_commit: str,
    base_branch: str,
    out: Path | None,
    timeout: timedelta,  # noqa: ASYNC109 - a flag of the command line
    piped_handle_timeout: timedelta,
    sort_label_keys: str,
) -> None:
    """Show what merging a branch would deploy and change.

    Nothing is deployed. Exits with 1 when a preview could not be made.

    \b
    Example, in a clone of the repository:
      pipectl plan-preview --repo-remote-url "$(git remote get-url origin)" \\
        --base-branch main --head-branch fix --head-commit "$(git rev-parse HEAD)"
    """
    request = pb.RequestPlanPreviewRequest(
        repo_remote_url=repo_remote_url,
        head_branch=head_branch,
        head_commit=head_commit,
        base_branch=base_branch,
        timeout=int(piped_handle_timeout.total_seconds()),
    )
    asked = (
        await call(client.api.RequestPlanPreview, request, metadata=idempotency_key())
    ).commands
    if not asked:
        raise click.ClickException(
            f"no enabled piped has the repository {repo_remote_url!r} with the branch"
            f" {base_branch!r}"
        )
    async with showing_progress() as progress:
        progress.update(f"asked {len(asked)} piped{'s' if len(asked) > 1 else ''} …")
        results = await _answers(client, asked, timeout, piped_handle_timeout, progress)
    keys = [key for key in sort_label_keys.split(",") if key]
    document = _document(_sort(results, keys))
    _tell(document, out)
    if document["FailureApplications"] or document["FailurePipeds"]:
        raise click.exceptions.Exit(1)


def _tell(document: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        out.write_text(json.dumps(document, indent=2) + "\n")
    for line in _text(document):
        echo(line)


async def _answers(
    client: Client,
    commands: Sequence[str],
    limit: timedelta,
    handle: timedelta,
    progress: Progress,
) -> list[PlanPreviewCommandResult]:
    """Returns the results of all pipeds; one that does not answer in time has an error for one.

    Raises TimedOutError when none of them answers.
    """
    found: list[PlanPreviewCommandResult] = []
    waiting = list(commands)
    try:
        async with asyncio.timeout(limit.total_seconds()):
            while waiting:
                for command in list(waiting):
                    if (result := await _read_result(client, command, handle)) is not None:
                        found.append(result)
                        waiting.remove(command)
                        progress.update(f"{len(found)} of {len(commands)} pipeds have answered …")
                if waiting:
                    await asyncio.sleep(PAUSE_SECONDS)
    except TimeoutError:
        reason = f"no answer within {format_duration(limit.total_seconds())}"
        if not found:
            raise TimedOutError(reason, hint="see `pipectl piped list`") from None
        found += [await _describe_silent(client, command, reason) for command in waiting]
    return found


async def _read_result(
    client: Client, command: str, handle: timedelta
) -> PlanPreviewCommandResult | None:
    """Returns the result of one piped; None while it is at work."""
    request = pb.GetPlanPreviewResultsRequest(
        commands=[command], command_handle_timeout=int(handle.total_seconds())
    )
    try:
        results = (await call(client.api.GetPlanPreviewResults, request)).results
    except CallError as error:
        if error.status != "NOT_FOUND":  # that is: it has not answered yet
            raise
        return None
    return results[0] if results else None


async def _describe_silent(client: Client, command: str, reason: str) -> PlanPreviewCommandResult:
    """Returns a result that names the piped that has not answered."""
    request = pb.GetCommandRequest(command_id=command)
    piped_id = (await call(client.api.GetCommand, request)).command.piped_id
    name = await find_piped_name(client, piped_id)
    return PlanPreviewCommandResult(
        command_id=command, piped_id=piped_id, piped_name=name, error=reason
    )


def _sort(
    results: Sequence[PlanPreviewCommandResult], keys: Sequence[str]
) -> list[PlanPreviewCommandResult]:
    ordered = sorted(results, key=lambda each: each.piped_id)
    for result in ordered:
        applications = sorted(
            result.results,
            key=lambda each: (*(each.labels.get(key, "") for key in keys), each.application_name),
        )
        del result.results[:]
        result.results.extend(applications)
    return ordered


def _document(results: Sequence[PlanPreviewCommandResult]) -> dict[str, Any]:
    """The file that CI actions read: the field names are upstream's."""
    document: dict[str, list[dict[str, Any]]] = {
        "Applications": [],
        "FailureApplications": [],
        "FailurePipeds": [],
    }
    for result in results:
        if result.error:
            document["FailurePipeds"].append(
                {
                    "PipedID": result.piped_id,
                    "PipedName": result.piped_name,
                    "PipedURL": result.piped_url,
                    "Reason": result.error,
                }
            )
            continue
        for each in result.results:
            about = _about(each)
            if each.error:
                document["FailureApplications"].append({**about, "Reason": each.error})
            else:
                document["Applications"].append({**about, **_to_plan(each)})
    return document


def _about(each: ApplicationPlanPreviewResult) -> dict[str, Any]:
    return {
        "ApplicationID": each.application_id,
        "ApplicationName": each.application_name,
        "ApplicationURL": each.application_url,
        "Env": each.labels.get("env", ""),
        "ApplicationKind": ApplicationKind.Name(each.application_kind),
        "ApplicationDirectory": each.application_directory,
        "AllPluginNames": list(each.plugin_names),
    }


def _to_plan(each: ApplicationPlanPreviewResult) -> dict[str, Any]:
    plans = list(each.plugin_plan_results)
    return {
        "SyncStrategy": SyncStrategy.Name(each.sync_strategy),
        "PlanSummary": each.plan_summary.decode(errors="replace"),
        "PlanDetails": each.plan_details.decode(errors="replace"),
        "NoChange": each.no_change,
        "PlannedPluginNames": sorted({plan.plugin_name for plan in plans}),
        "PluginPlanResults": [_plan(plan) for plan in plans],
    }


def _plan(plan: PluginPlanPreviewResult) -> dict[str, str]:
    return {
        "PluginName": plan.plugin_name,
        "DeployTarget": plan.deploy_target,
        "PlanSummary": plan.plan_summary.decode(errors="replace"),
        "PlanDetails": plan.plan_details.decode(errors="replace"),
        "DiffLanguage": plan.diff_language,
    }


def _text(document: dict[str, Any]) -> Iterator[str]:
    planned, broken = document["Applications"], document["FailureApplications"]
    if not planned and not broken and not document["FailurePipeds"]:
        yield "the change touches no application"
    if planned:
        yield f"{len(planned)} application{'s' if len(planned) > 1 else ''} would be deployed:"
    for number, each in enumerate(planned, 1):
        yield ""
        yield f"{number}. {_title(each)}"
        yield f"  strategy: {each['SyncStrategy'].lower().replace('_', ' ')}"
        if not each["PluginPlanResults"] and each["PlanSummary"]:
            yield f"  summary: {each['PlanSummary']}"
        for plan in each["PluginPlanResults"]:
            where = f" ({plan['DeployTarget']})" if plan["DeployTarget"] else ""
            yield f"  {plan['PluginName']}{where}: {plan['PlanSummary']}"
            if plan["PlanDetails"]:
                yield f"  {BEGIN}"
                yield plan["PlanDetails"].rstrip("\n")
                yield f"  {END}"
    for each in broken:
        yield ""
        yield f"failed: {_title(each)}"
        yield f"  reason: {each['Reason']}"
    for piped in document["FailurePipeds"]:
        yield ""
        yield f"failed: piped {piped['PipedName'] or piped['PipedID']}"
        yield f"  reason: {piped['Reason']}"


def _title(each: dict[str, Any]) -> str:
    env = f", env {each['Env']}" if each["Env"] else ""
    plugins = ", ".join(each["AllPluginNames"])
    made_with = f" [{plugins}]" if plugins else ""
    return f"{each['ApplicationName']}{made_with} in {each['ApplicationDirectory']}{env}"
