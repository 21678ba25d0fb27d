# SPDX-License-Identifier: Apache-2.0
"""Judges services, revisions and jobs by their conditions. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pipecd_google.errors import clean_message
from pipecd_sdk import Health

SERVICE_NEEDS: Final = ("Ready", "ConfigurationsReady", "RoutesReady")
REVISION_NEEDS: Final = ("Ready", "ContainerHealthy", "ResourcesAvailable")
CONSIDERED: Final = frozenset({*SERVICE_NEEDS, *REVISION_NEEDS, "Active"})
_SUCCEEDED: Final = "CONDITION_SUCCEEDED"
_FAILED: Final = "CONDITION_FAILED"
_HARMLESS: Final = frozenset({"WARNING", "INFO"})


class ReadyVerdict(Enum):
    """What is known of something that was deployed."""

    READY = "ready"
    WAITING = "waiting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict and why."""

    verdict: ReadyVerdict
    reason: str = ""


def judge_revision(revision: Mapping[str, Any] | None, *, is_used: bool) -> Judgement:
    """Judges a revision; one that gets traffic, or a tag, must be active as well."""
    if revision is None:
        return Judgement(verdict=ReadyVerdict.WAITING, reason="it is not there yet")
    found = {each["type"]: each for each in _iter_conditions(revision)}
    needed = [name for name in REVISION_NEEDS if name == "Ready" or name in found]
    for name in needed:
        if name in found and _is_failed(found[name]):
            return Judgement(verdict=ReadyVerdict.FAILED, reason=_describe(found[name]))
    if is_used and "Active" in found:
        needed.append("Active")
    for name in needed:
        if found.get(name, {}).get("state") != _SUCCEEDED:
            return Judgement(verdict=ReadyVerdict.WAITING, reason=_describe_missing(found, name))
    return Judgement(verdict=ReadyVerdict.READY)


def judge_settled(resource: Mapping[str, Any] | None) -> Judgement:
    """Judges whether a service or a job is what was last asked for."""
    if resource is None:
        return Judgement(verdict=ReadyVerdict.WAITING, reason="it is not there yet")
    if resource.get("reconciling") or _read_number(resource, "observedGeneration") < _read_number(
        resource, "generation"
    ):
        return Judgement(verdict=ReadyVerdict.WAITING, reason="it is being changed")
    terminal = resource.get("terminalCondition")
    if not isinstance(terminal, Mapping):
        return Judgement(verdict=ReadyVerdict.WAITING, reason="its state is not known yet")
    if terminal.get("state") == _SUCCEEDED:
        return Judgement(verdict=ReadyVerdict.READY)
    if terminal.get("state") == _FAILED:
        return Judgement(verdict=ReadyVerdict.FAILED, reason=_describe(terminal))
    return Judgement(verdict=ReadyVerdict.WAITING, reason=_describe(terminal))


def assess_health(resource: Mapping[str, Any], *, needs: tuple[str, ...]) -> tuple[Health, str]:
    """Returns the health of a live resource, and a sentence about it."""
    found = {each["type"]: each for each in _iter_conditions(resource)}
    if not found:
        return Health.UNKNOWN, "it has no status yet"
    failed = [each for name, each in found.items() if name in CONSIDERED and _is_failed(each)]
    if failed:
        return Health.UNHEALTHY, "; ".join(_describe(each) for each in failed)
    open_ones = [name for name in needs if found.get(name, {}).get("state") != _SUCCEEDED]
    if resource.get("reconciling"):
        return Health.UNKNOWN, "it is being changed"
    if open_ones:
        return Health.UNKNOWN, "; ".join(_describe_missing(found, name) for name in open_ones)
    return Health.HEALTHY, ""


def list_conditions(resource: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns all conditions of a resource that have the form of one."""
    return list(_iter_conditions(resource))


def _iter_conditions(resource: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    conditions = resource.get("conditions")
    terminal = resource.get("terminalCondition")
    for each in (*(conditions if isinstance(conditions, list) else ()), terminal):
        if isinstance(each, Mapping) and isinstance(each.get("type"), str):
            yield each


def _is_failed(condition: Mapping[str, Any]) -> bool:
    return condition.get("state") == _FAILED and condition.get("severity") not in _HARMLESS


def _describe(condition: Mapping[str, Any]) -> str:
    name = clean_message(str(condition.get("type", "condition")))
    said = condition.get("message") or condition.get("reason") or condition.get("revisionReason")
    return f"{name}: {clean_message(str(said or condition.get('state') or 'unknown'))}"


def _describe_missing(found: Mapping[str, Mapping[str, Any]], name: str) -> str:
    return _describe(found[name]) if name in found else f"{name}: not known yet"


def _read_number(resource: Mapping[str, Any], key: str) -> int:
    """Returns a 64 bit number, which JSON has as a text."""
    value = resource.get(key)
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 20 else 0
