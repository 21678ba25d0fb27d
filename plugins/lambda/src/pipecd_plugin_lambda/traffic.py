# SPDX-License-Identifier: Apache-2.0
"""How an alias splits the traffic between two versions. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipecd_sdk import StageFailedError


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionShare:
    """A version and its share of the traffic."""

    version: str
    percent: float

    def __str__(self) -> str:
        return f"version {self.version} {self.percent:g} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The traffic of an alias."""

    primary: VersionShare
    secondary: VersionShare | None = None

    def __str__(self) -> str:
        shares = [each for each in (self.primary, self.secondary) if each and each.percent]
        return ", ".join(map(str, shares))

    @property
    def versions(self) -> tuple[str, ...]:
        """Returns the versions that it names."""
        return tuple(each.version for each in (self.primary, self.secondary) if each)

    def is_same(self, other: "Traffic | None") -> bool:
        """Returns whether the traffic goes the same way; a share of nothing counts for nothing."""
        return other is not None and str(self) == str(other)

    def to_api(self) -> dict[str, Any]:
        """Returns it as UpdateAlias takes it.

        A version without traffic is not named: AWS refuses an alias with two versions that have
        different roles or dead letter queues, also when one of them gets nothing.
        """
        used = [each for each in (self.primary, self.secondary) if each and each.percent > 0]
        first, *rest = used or [self.primary]
        weights = {each.version: round(each.percent / 100, 4) for each in rest}
        return {
            "FunctionVersion": first.version,
            "RoutingConfig": {"AdditionalVersionWeights": weights},
        }

    def to_json(self) -> dict[str, Any]:
        """Returns it as it is kept in metadata."""
        kept: dict[str, Any] = {"primary": _to_json(self.primary)}
        if self.secondary is not None:
            kept["secondary"] = _to_json(self.secondary)
        return kept


def _to_json(share: VersionShare) -> dict[str, Any]:
    return {"version": share.version, "percent": share.percent}


def send_all(version: str) -> Traffic:
    """Returns the traffic that goes to one version only."""
    return Traffic(primary=VersionShare(version=version, percent=100))


def shift(traffic: Traffic, version: str, percent: float) -> Traffic:
    """Returns the traffic with this share for a version, and the rest for what had it before.

    A version that has none and gets none changes nothing.

    Example:
        >>> str(shift(send_all("5"), "6", 10))
        'version 6 10 %, version 5 90 %'
    """
    if not percent and version not in traffic.versions:
        return traffic
    primary = VersionShare(version=version, percent=percent)
    if traffic.primary.version != version:
        other: VersionShare | None = traffic.primary
    else:
        other = traffic.secondary
    if other is None:
        return send_all(version)
    return Traffic(
        primary=primary, secondary=VersionShare(version=other.version, percent=100 - percent)
    )


def parse_alias(answer: Mapping[str, Any]) -> Traffic:
    """Returns the traffic of an alias from AWS's answer. Raises StageFailedError."""
    try:
        routing = answer.get("RoutingConfig") or {}
        weights = dict(routing.get("AdditionalVersionWeights") or {})
        version = str(answer["FunctionVersion"])
        if not weights:
            return send_all(version)
        ((other, weight),) = weights.items()  # AWS knows no more than two versions
        percent = round(float(weight) * 100, 2)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StageFailedError(f"AWS's answer about the alias is not understood: {error}") from None
    return Traffic(
        primary=VersionShare(version=version, percent=100 - percent),
        secondary=VersionShare(version=str(other), percent=percent),
    )


def parse_kept(kept: Mapping[str, Any]) -> Traffic:
    """Returns the traffic that metadata has. Raises KeyError, TypeError or ValueError."""
    second = kept.get("secondary")
    return Traffic(
        primary=_parse_share(kept["primary"]),
        secondary=_parse_share(second) if second else None,
    )


def _parse_share(kept: Mapping[str, Any]) -> VersionShare:
    return VersionShare(version=str(kept["version"]), percent=float(kept["percent"]))
