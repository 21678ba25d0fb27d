# SPDX-License-Identifier: Apache-2.0
"""Listener rules that split traffic between two target groups: which they are, and their weights.

Only actions that forward to exactly these two groups are ours. All else of a rule (conditions,
sign-in, stickiness, other actions) goes back as it came.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipecd_aws import AwsAccount
from pipecd_sdk import StageFailedError

_PAGES: Final = {"token_in": "Marker", "token_out": "NextMarker"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerRule:
    """A rule of a listener that forwards to both target groups."""

    arn: str
    listener_arn: str
    is_default: bool
    actions: Sequence[Mapping[str, Any]]
    weights: tuple[int, int]
    """Of primary and canary."""

    @property
    def key(self) -> str:
        """Returns what names it: a listener has one default rule."""
        return self.listener_arn if self.is_default else self.arn


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficRules:
    """The rules of one application's load balancers."""

    account: AwsAccount
    primary: str
    """The ARN of the primary's target group."""
    canary: str

    async def list_rules(self) -> list[ListenerRule]:
        """Returns the rules that forward to both groups, of all listeners. Raises AwsError."""
        found: list[ListenerRule] = []
        async for listener in self._list_listeners():
            listener_arn = str(listener.get("ListenerArn", ""))
            rules = self.account.list_all(
                "elbv2", "DescribeRules", {"ListenerArn": listener_arn}, items="Rules", **_PAGES
            )
            async for body in rules:
                rule = self._read_rule(listener_arn, body)
                if rule is not None:
                    found.append(rule)
        return found

    async def set_weights(self, rule: ListenerRule, weights: tuple[int, int]) -> bool:
        """Splits the traffic of a rule; returns whether that changed anything. Raises AwsError."""
        if rule.weights == weights:
            return False
        actions = [self._weigh(action, weights) for action in rule.actions]
        if rule.is_default:
            await self.account.call(
                "elbv2",
                "ModifyListener",
                {"ListenerArn": rule.listener_arn, "DefaultActions": actions},
            )
        else:
            await self.account.call(
                "elbv2", "ModifyRule", {"RuleArn": rule.arn, "Actions": actions}
            )
        return True

    async def _list_listeners(self) -> AsyncIterator[Mapping[str, Any]]:
        answer = await self.account.call(
            "elbv2", "DescribeTargetGroups", {"TargetGroupArns": [self.primary]}
        )
        groups = answer.get("TargetGroups") or ()
        found = [arn for each in groups for arn in each.get("LoadBalancerArns") or ()]
        balancers = list(dict.fromkeys(found))
        if not balancers:
            raise StageFailedError(
                f"no load balancer leads to the primary's target group {self.primary}",
                hint="add a listener that forwards to it and to the canary's",
            )
        for arn in balancers:
            listeners = self.account.list_all(
                "elbv2", "DescribeListeners", {"LoadBalancerArn": arn}, items="Listeners", **_PAGES
            )
            async for listener in listeners:
                yield listener

    def _read_rule(self, listener_arn: str, body: Mapping[str, Any]) -> ListenerRule | None:
        actions = [each for each in body.get("Actions") or () if isinstance(each, Mapping)]
        for action in actions:
            weights = self._read_weights(action)
            if weights is not None:
                return ListenerRule(
                    arn=str(body.get("RuleArn", "")),
                    listener_arn=listener_arn,
                    is_default=bool(body.get("IsDefault")),
                    actions=actions,
                    weights=weights,
                )
        return None

    def _read_weights(self, action: Mapping[str, Any]) -> tuple[int, int] | None:
        """Returns the weights of an action that is ours, None for another one."""
        config = action.get("ForwardConfig")
        if action.get("Type") != "forward" or not isinstance(config, Mapping):
            return None
        weights = {
            str(each.get("TargetGroupArn", "")): int(each.get("Weight", 1))
            for each in config.get("TargetGroups") or ()
        }
        if set(weights) != {self.primary, self.canary}:
            return None
        return weights[self.primary], weights[self.canary]

    def _weigh(self, action: Mapping[str, Any], weights: tuple[int, int]) -> dict[str, Any]:
        """Returns an action as it goes back: with other weights if it is ours."""
        if self._read_weights(action) is None:
            return _keep_secret(action)
        shares = dict(zip((self.primary, self.canary), weights, strict=True))
        config = action["ForwardConfig"]
        groups = [
            {**each, "Weight": shares[each["TargetGroupArn"]]} for each in config["TargetGroups"]
        ]
        kept = {key: value for key, value in action.items() if key != "TargetGroupArn"}
        return {**kept, "ForwardConfig": {**config, "TargetGroups": groups}}


def _keep_secret(action: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an action as it goes back; AWS keeps the client secret, which it never tells."""
    sign_in = action.get("AuthenticateOidcConfig")
    if not isinstance(sign_in, Mapping) or "ClientSecret" in sign_in:
        return dict(action)
    return {**action, "AuthenticateOidcConfig": {**sign_in, "UseExistingClientSecret": True}}
