# SPDX-License-Identifier: Apache-2.0
"""What ran before a deployment: kept before its first change, so that a rollback finds it.

Values of variables are not part of it: the revision that ran still has them.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from pipecd_plugin_cloudrun.compare import extract_fields, extract_unkept
from pipecd_plugin_cloudrun.naming import get_short_name
from pipecd_plugin_cloudrun.stages.run import TargetWork
from pipecd_plugin_cloudrun.traffic import Shares, read_shares, read_tags
from pipecd_sdk import StageFailedError


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalService:
    """A service as it was; without a revision it was not there."""

    name: str
    is_absent: bool = False
    revision: str = ""
    """The one that its template described."""
    shares: Shares = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    """Beside template and traffic: labels, annotations, ingress and so on."""
    unkept: dict[str, Any] | None = None
    """Of the template, what its revision does not keep; None where an earlier release kept this."""


def _make_key(run: TargetWork) -> str:
    return f"original-{run.target.name}"


async def keep_original(run: TargetWork, name: str, live: dict[str, Any] | None) -> OriginalService:
    """Returns what ran before the deployment; keeps it if this is the first look."""
    kept = await read_original(run)
    if kept is not None:
        return kept
    made = _describe(name, live)
    await run.ctx.deployment_metadata.put(
        _make_key(run),
        json.dumps(
            {
                "name": made.name,
                "absent": made.is_absent,
                "revision": made.revision,
                "shares": made.shares,
                "tags": made.tags,
                "fields": made.fields,
                "unkept": made.unkept,
            }
        ),
    )
    return made


async def read_original(run: TargetWork) -> OriginalService | None:
    """Returns what was kept, None when this deployment has not begun to change anything."""
    text = await run.ctx.deployment_metadata.get(_make_key(run))
    if not text:
        return None
    try:
        kept = json.loads(text)
        return OriginalService(
            name=kept["name"],
            is_absent=kept["absent"],
            revision=kept["revision"],
            shares=kept["shares"],
            tags=kept["tags"],
            fields=kept["fields"],
            unkept=kept.get("unkept"),
        )
    except (ValueError, KeyError, TypeError):
        raise StageFailedError(
            "what ran before this deployment was kept in a form that cannot be read",
            hint="choose the traffic of the service by hand",
        ) from None


def _describe(name: str, live: dict[str, Any] | None) -> OriginalService:
    if live is None:
        return OriginalService(name=name, is_absent=True)
    template = live.get("template")
    named = template.get("revision") if isinstance(template, dict) else ""
    return OriginalService(
        name=name,
        revision=named or get_short_name(live.get("latestCreatedRevision")),
        shares=read_shares(live),
        tags=read_tags(live),
        fields=extract_fields(live),
        unkept=extract_unkept(live),
    )
