# SPDX-License-Identifier: Apache-2.0
"""ECS_TRAFFIC_ROUTING: split the traffic of the load balancers, and the way back."""

import json
from typing import Any, Final

from pipecd_plugin_ecs.provider.elb import TrafficRules
from pipecd_plugin_ecs.stages.rolling import refuse_rolling
from pipecd_plugin_ecs.stages.rollout import CANARY_PERCENTAGE
from pipecd_plugin_ecs.stages.run import ServiceRun
from pipecd_sdk import StageFailedError

ORIGINAL: Final = "original-weights"


async def route_traffic(run: ServiceRun, shares: tuple[int, int]) -> None:
    """Gives primary and canary their shares of the traffic. Raises StageFailedError."""
    refuse_rolling(run)
    rules = _find_rules(run)
    found = await rules.list_rules()
    if not found:
        raise StageFailedError(
            "no rule of a listener forwards to both target groups",
            hint=f"add a forward action with {rules.primary} and {rules.canary}",
        )
    if await run.recall(ORIGINAL) is None:
        original = {
            "primary": rules.primary,
            "canary": rules.canary,
            "rules": {each.key: each.weights for each in found},
        }
        await run.keep({ORIGINAL: json.dumps(original)})
    await run.keep(
        {
            "canary-target-group-arn": rules.canary,
            "current-listeners": ",".join(dict.fromkeys(each.listener_arn for each in found)),
            "primary-percentage": str(shares[0]),
            CANARY_PERCENTAGE: str(
                max(shares[1], _read_share(await run.recall(CANARY_PERCENTAGE)))
            ),
        }
    )
    for rule in found:
        if await rules.set_weights(rule, shares):
            run.log.info("%s: primary %d %%, canary %d %%", rule.arn, *shares)
        else:
            run.log.info("%s is so already", rule.arn)
    # Only now is it true: until then the canary may still have got what it had.
    await run.keep({CANARY_PERCENTAGE: str(shares[1])})
    run.log.success("primary %d %%, canary %d %%, in %d rules", *shares, len(found))


async def restore_traffic(run: ServiceRun) -> None:
    """Gives the rules the weights that they had before the deployment. Raises StageFailedError."""
    text = await run.recall(ORIGINAL)
    if text is None:
        return
    try:
        value: Any = json.loads(text)
        rules = TrafficRules(
            account=run.client.account,
            primary=str(value["primary"]),
            canary=str(value["canary"]),
        )
        original = {str(key): (int(p), int(c)) for key, (p, c) in value["rules"].items()}
    except (ValueError, TypeError, KeyError):
        raise StageFailedError(
            "the weights before the deployment cannot be read from its metadata",
            hint="give the primary's target group all the traffic by hand",
        ) from None
    found = {each.key: each for each in await rules.list_rules()}
    for key, weights in original.items():
        rule = found.get(key)
        if rule is None:
            run.log.error("%s does not forward to both groups any more; it is left alone", key)
        elif await rules.set_weights(rule, weights):
            run.log.info("%s: back at primary %d, canary %d", key, *weights)
    await run.keep({CANARY_PERCENTAGE: "0"})


def _find_rules(run: ServiceRun) -> TrafficRules:
    given = run.definitions.options.input
    groups = given.target_groups
    if given.access_type != "ELB":
        raise StageFailedError(
            "ECS_TRAFFIC_ROUTING needs a load balancer",
            hint="service discovery sends traffic to all tasks alike: leave the stage out",
        )
    if groups.primary is None or groups.canary is None:
        raise StageFailedError(
            "ECS_TRAFFIC_ROUTING needs both target groups",
            hint="name them with input.targetGroups.primary and input.targetGroups.canary",
        )
    return TrafficRules(
        account=run.client.account,
        primary=groups.primary.target_group_arn,
        canary=groups.canary.target_group_arn,
    )


def _read_share(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
