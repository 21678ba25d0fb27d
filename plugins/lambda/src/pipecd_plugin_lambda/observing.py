# SPDX-License-Identifier: Apache-2.0
"""What runs, and whether it is what git says: live state and drift of one deploy target.

piped asks every minute. A function that stays as it is is read less and less often, up to every
five minutes: the API cannot tell of several functions at once what they and their aliases are.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from pipecd_plugin_lambda.compare import (
    AliasState,
    compare_function,
    format_nodes,
    list_alias_faults,
)
from pipecd_plugin_lambda.manifest import FunctionManifest
from pipecd_plugin_lambda.parameters import APPLICATION, COMMIT, fit_manifest, fit_url
from pipecd_plugin_lambda.provider.functions import FunctionApi, LiveFunction
from pipecd_plugin_lambda.stages.waiting import explain_state
from pipecd_sdk import Health, LiveContext, LiveSnapshot, Resource, SyncState, SyncStatus
from pipecd_sdk.kit.diff import Node
from pipecd_sdk.kit.rereads import Reread

FIRST_PAUSE: Final = timedelta(minutes=2)
LONGEST_PAUSE: Final = timedelta(minutes=5)
JITTER: Final = 0.5
"""Half of a pause is random: functions that were deployed together are not read together."""
RETRY_TIME: Final = timedelta(seconds=20)
"""How long a call is tried again: piped waits for a minute, and asks again anyway."""
_HEALTH: Final = {
    "Active": Health.HEALTHY,
    "Pending": Health.UNHEALTHY,
    "Inactive": Health.UNHEALTHY,
    "Failed": Health.UNHEALTHY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFunction:
    """What was found of one function."""

    api: FunctionApi
    manifest: FunctionManifest
    live: LiveFunction | None
    alias: AliasState
    versions: Mapping[str, LiveFunction]

    @property
    def owner(self) -> str:
        """Returns the application that the function's tags name."""
        return str(self.live.tags.get(APPLICATION, "")) if self.live else ""


class FunctionObserver:
    """What is known of the functions of all applications."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Reread[SeenFunction]] = {}

    async def look(
        self,
        api: FunctionApi,
        manifest: FunctionManifest,
        ctx: LiveContext,
        target: str,
        *,
        is_fresh: bool = False,
    ) -> SeenFunction:
        """Returns what was found of a function; `is_fresh`: what is there now. Raises AwsError."""
        account = api.account.report_to(clock=ctx.clock, on_retry=api.account.on_retry)
        api = replace(api, account=account.limit_retries(RETRY_TIME))
        known = self._known.get((ctx.application_id, target))
        if known is None:
            known = self._known[ctx.application_id, target] = Reread(
                first=FIRST_PAUSE, longest=LONGEST_PAUSE, jitter=JITTER
            )
        key: Hashable = (ctx.source.commit_hash, ctx.source.config, manifest.name)
        return await known.get(
            key, partial(look, api, manifest), clock=ctx.clock, is_fresh=is_fresh
        )

    def forget(self, application_id: str) -> None:
        """Lets the function of an application be read anew: a stage has changed it."""
        for (each, _), known in self._known.items():
            if each == application_id:
                known.forget()


async def look(api: FunctionApi, manifest: FunctionManifest) -> SeenFunction:
    """Returns a function, its alias and the versions that have traffic. Raises AwsError."""
    live = _leave_out_address(await api.get())
    name = manifest.options.input.alias
    traffic = await api.get_alias(name) if live is not None else None
    versions: dict[str, LiveFunction] = {}
    for share in (traffic.primary, traffic.secondary) if traffic else ():
        if share is None or not share.percent:
            continue
        found = _leave_out_address(await api.get(share.version))
        if found is not None:
            versions[share.version] = found
    first = versions.get(traffic.primary.version) if traffic else None
    wants_more = traffic is not None
    return SeenFunction(
        api=api,
        manifest=manifest,
        live=live,
        alias=AliasState(
            traffic=traffic,
            version_hash=first.code_hash if first else "",
            url=await api.get_url(name) if wants_more and manifest.url is not None else None,
            provisioned=(
                await api.get_provisioned(name) if wants_more and manifest.provisioned else None
            ),
        ),
        versions=versions,
    )


def _leave_out_address(live: LiveFunction | None) -> LiveFunction | None:
    """Returns a function without the address of its code, which is another one in each answer."""
    if live is None:
        return None
    return replace(live, code={k: v for k, v in live.code.items() if k != "Location"})


def list_resources(seen: SeenFunction) -> LiveSnapshot:
    """Returns the function, its alias and the versions that have traffic."""
    return LiveSnapshot(resources=list(_iter_resources(seen)), data=seen)


def _iter_resources(seen: SeenFunction) -> Iterator[Resource]:
    name = seen.manifest.name
    if seen.live is None:
        yield Resource(
            id=name,
            name=name,
            kind="Function",
            health=Health.UNHEALTHY,
            description="there is no such function",
        )
        return
    yield _describe(name, name, "Function", seen.live.configuration, commit=seen.live.tags)
    traffic = seen.alias.traffic
    if traffic is None:
        return
    alias = seen.manifest.options.input.alias
    metadata = {"traffic": str(traffic)}
    if seen.alias.url:
        metadata["url"] = str(seen.alias.url.get("FunctionUrl", ""))
    if seen.alias.provisioned:
        available = seen.alias.provisioned.get("AvailableProvisionedConcurrentExecutions", 0)
        metadata["provisioned"] = f"{available} of {seen.manifest.provisioned}"
    yield Resource(
        id=f"{name}:{alias}",
        name=alias,
        kind="Alias",
        parents=[name],
        health=Health.HEALTHY,
        description=str(traffic),
        metadata=metadata,
    )
    for version, found in seen.versions.items():
        yield _describe(
            f"{name}:{version}", version, "Version", found.configuration, parent=f"{name}:{alias}"
        )


def _describe(
    identity: str,
    name: str,
    kind: str,
    configuration: Mapping[str, Any],
    *,
    parent: str = "",
    commit: Mapping[str, str] | None = None,
) -> Resource:
    state = str(configuration.get("State") or "")
    reason = explain_state(configuration, "State")
    health = _HEALTH.get(state, Health.UNKNOWN)
    if configuration.get("LastUpdateStatus") == "Failed":
        health = Health.UNHEALTHY
        state, reason = "update failed", explain_state(configuration, "LastUpdateStatus")
    shown = {
        "version": configuration.get("Version"),
        "description": configuration.get("Description"),
        "runtime": configuration.get("Runtime"),
        "memory": configuration.get("MemorySize"),
        "codeSha256": configuration.get("CodeSha256"),
        "commit": (commit or {}).get(COMMIT),
    }
    return Resource(
        id=identity,
        name=name,
        kind=kind,
        parents=[parent] if parent else (),
        health=health,
        description=f"{state}: {reason}" if reason else state,
        metadata={key: str(value) for key, value in shown.items() if value},
        created_at=_read_time(configuration.get("LastModified")),
    )


def _read_time(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text).replace("+0000", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


async def list_differences(seen: SeenFunction) -> list[Node]:
    """Returns where a function is not as git has it. Raises StageFailedError."""
    if seen.live is None:
        return []
    manifest = seen.manifest
    parameters = fit_manifest(manifest, await seen.api.read_shape("CreateFunction"))
    url: Mapping[str, Any] = {}
    if manifest.url is not None:
        url = fit_url(manifest, await seen.api.read_shape("CreateFunctionUrlConfig"))
    return compare_function(manifest, parameters, seen.live, seen.alias, url)


async def compare_with_git(seen: SeenFunction, application_id: str) -> SyncState:
    """Returns whether a function and its alias are as git has them."""
    alias = seen.manifest.options.input.alias
    if seen.live is None:
        reason = f"there is no function {seen.manifest.name}"
        return SyncState(status=SyncStatus.OUT_OF_SYNC, short_reason=reason, reason=reason)
    if seen.live.tags_fault:
        short = "the tags of the function cannot be read: allow the action lambda:ListTags"
        reason = f"{short} ({seen.live.tags_fault})"
        return SyncState(status=SyncStatus.UNKNOWN, short_reason=short, reason=reason)
    faults = list_alias_faults(seen.alias, alias, seen.live)
    if seen.owner != application_id:
        whose = f"that of the application {seen.owner}" if seen.owner else "not one of PipeCD's"
        faults.insert(0, f"the function is {whose}: a sync takes it over")
    nodes = await list_differences(seen)
    if not faults and not nodes:
        return SyncState(status=SyncStatus.SYNCED)
    counts = [f"{len(nodes)} field{'s' if len(nodes) > 1 else ''} changed"] if nodes else []
    short = "; ".join([*counts, *faults])
    sentences = "".join(f"{each}\n" for each in faults)
    text = f"{short}\n\n{sentences}{format_nodes(nodes)}"
    return SyncState(status=SyncStatus.OUT_OF_SYNC, short_reason=short[:300], reason=text)
