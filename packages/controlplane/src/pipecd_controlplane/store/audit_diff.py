# SPDX-License-Identifier: Apache-2.0
"""What an audit record shows of a change: names of fields, and the values that are no secret.

Values are shown by a list of what may be shown, not by one of what must be hidden: a field that is
added to a message later is shown by its name alone until somebody decides about it here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_model.audit import dump_fields

HIDDEN: Final = "(not shown)"
LONGEST_TEXT: Final = 200
"""Characters of one value."""
LONGEST_JSON: Final = 4000
"""Characters of everything that a record shows of one side of a change."""

MOST_NAMES: Final = 10
"""Names of fields that are left of a change that is too long."""

NOT_TOLD: Final = frozenset({"id", "project_id", "created_at", "updated_at"})
"""What says nothing of a change."""

_USER_INFO: Final = re.compile(r"://[^/@\s]*@")

ALL: Final = frozenset({"*"})

SHOWN: Final[Mapping[str, frozenset[str]]] = {
    "model.Application": frozenset(
        {
            "name",
            "piped_id",
            "kind",
            "git_path",
            "platform_provider",
            "deploy_targets_by_plugin",
            "description",
            "labels",
            "disabled",
            "deleted",
        }
    ),
    "model.ApplicationGitPath": frozenset({"repo", "path", "config_filename"}),
    "model.ApplicationGitRepository": frozenset({"id", "branch"}),
    "model.DeployTargets": ALL,
    "model.Piped": frozenset({"name", "desc", "keys", "desired_version", "disabled"}),
    "model.PipedKey": frozenset({"creator", "created_at"}),
    "model.APIKey": frozenset({"name", "role", "creator", "disabled"}),
    "model.Project": frozenset(
        {
            "desc",
            "static_admin",
            "static_admin_disabled",
            "sso",
            "rbac",
            "shared_sso_name",
            "allow_stray_as_viewer",
            "rbac_roles",
            "user_groups",
        }
    ),
    "model.ProjectStaticUser": frozenset({"username"}),
    "model.ProjectSSOConfig": frozenset({"provider", "session_ttl", "github", "google", "oidc"}),
    "model.ProjectSSOConfig.GitHub": frozenset({"base_url"}),
    "model.ProjectSSOConfig.Google": frozenset(),
    "model.ProjectSSOConfig.Oidc": frozenset({"issuer", "roles_claim_key", "username_claim_key"}),
    "model.ProjectRBACConfig": ALL,
    "model.ProjectRBACRole": ALL,
    "model.ProjectRBACPolicy": ALL,
    "model.ProjectRBACResource": ALL,
    "model.ProjectUserGroup": ALL,
    "model.Command": frozenset(
        {
            "type",
            "piped_id",
            "application_id",
            "deployment_id",
            "stage_id",
            "sync_application",
            "cancel_deployment",
            "build_plan_preview",
        }
    ),
    "model.Command.SyncApplication": frozenset({"sync_strategy"}),
    "model.Command.CancelDeployment": frozenset({"force_rollback", "force_no_rollback"}),
    "model.Command.BuildPlanPreview": ALL,
    "model.Event": frozenset({"name", "labels", "status"}),
    "model.DeploymentTrace": frozenset({"commit_hash"}),
    "pipecd.push.v1.Command": frozenset(
        {"type", "application_id", "deployment_id", "stage_id", "plugin_name"}
    ),
    "pipecd.api.v1.Session": frozenset(
        {"subject", "via", "groups", "roles", "address", "expires_at"}
    ),
    "pipecd.api.v1.Hook": frozenset({"name", "host", "repository_url", "creator"}),
    "pipecd.control.v1.ApplicationControl": ALL,
    "pipecd.control.v1.Hold": ALL,
    "pipecd.control.v1.Pin": ALL,
    "pipecd.control.v1.Freeze": ALL,
    "pipecd.control.v1.ProjectRules": ALL,
    "pipecd.control.v1.Window": ALL,
    "pipecd.control.v1.EmergencyStop": ALL,
    "pipecd.control.v1.DeploymentRecord": ALL,
    "pipecd.control.v1.Override": ALL,
    "pipecd.control.v1.StageAction": ALL,
}
"""The fields whose values are shown, by message; `*` is all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedChange:
    """One thing that a unit of work has written: None is a thing that was not, or is no more."""

    noun: str
    id: str
    before: Message | None
    after: Message | None


def describe_changes(noted: Iterable[NotedChange]) -> tuple[str, str]:
    """Returns what changed as two JSON objects, before and after; empty where nothing is to tell.

    Of several things each is told under its noun and id.
    """
    told = [(each, *_compare(each.before, each.after)) for each in noted]
    told = [each for each in told if each[1] or each[2]]
    if len(told) == 1:
        return _dump(told[0][1]), _dump(told[0][2])
    before = {f"{each.noun} {each.id}": was for each, was, _ in told if was}
    after = {f"{each.noun} {each.id}": now for each, _, now in told if now}
    return _dump(before), _dump(after)


def _compare(
    before: Message | None, after: Message | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    either = before if before is not None else after
    if either is None:
        return {}, {}
    was: dict[str, Any] = {}
    now: dict[str, Any] = {}
    for described in either.DESCRIPTOR.fields:
        if described.name in NOT_TOLD:
            continue
        old, new = _read(before, described), _read(after, described)
        if old == new:
            continue
        if described.is_repeated and not _is_map(described):
            # Of a list only what is gone, and what is new.
            old, new = (
                [each for each in old if each not in new],
                [each for each in new if each not in old],
            )
        for value, side in ((old, was), (new, now)):
            if value or (before is not None and after is not None and not described.is_repeated):
                side[described.name] = _show_field(described, value)
    return was, now


def _read(message: Message | None, described: Any) -> Any:
    if message is None:
        return [] if described.is_repeated and not _is_map(described) else None
    value = getattr(message, described.name)
    if _is_map(described):
        return dict(value)
    if described.is_repeated:
        return list(value)
    if described.message_type is not None and not message.HasField(described.name):
        return None
    return value


def _show_field(described: Any, value: Any) -> Any:
    shown = SHOWN.get(described.containing_type.full_name, frozenset())
    if described.name not in shown and shown is not ALL:
        return HIDDEN
    if _is_map(described):
        of_value = described.message_type.fields_by_name["value"]
        return {_shorten(str(key)): _show(of_value, each) for key, each in sorted(value.items())}
    if described.is_repeated:
        return [_show(described, each) for each in value]
    return _show(described, value)


def _show(described: Any, value: Any) -> Any:
    if isinstance(value, Timestamp | Duration):
        return value.ToJsonString()
    if isinstance(value, Message):
        return {each.name: _show_field(each, _read(value, each)) for each, _ in value.ListFields()}
    if described.enum_type is not None and value is not None:
        found = described.enum_type.values_by_number.get(value)
        return found.name if found is not None else value
    if isinstance(value, str):
        return _shorten(value)
    return value if isinstance(value, int | bool) or value is None else HIDDEN


def _is_map(described: Any) -> bool:
    kind = described.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


def _shorten(text: str) -> str:
    text = _USER_INFO.sub("://", text)
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}… ({len(text)} characters)"


def _dump(fields: Mapping[str, Any]) -> str:
    text = dump_fields(fields)
    if len(text) <= LONGEST_JSON:
        return text
    # Too much to keep: the names alone tell where to look.
    names = {_shorten(name): HIDDEN for name in sorted(fields)[:MOST_NAMES]}
    return dump_fields({**names, "…": f"{len(fields)} fields, {len(text)} characters"})
