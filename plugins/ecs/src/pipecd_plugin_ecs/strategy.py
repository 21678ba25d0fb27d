# SPDX-License-Identifier: Apache-2.0
"""Decides whether a change is worth the pipeline: another image is. Pure."""

from pipecd_plugin_ecs.definition import Definitions, list_containers
from pipecd_sdk import Strategy, SyncStrategy


def decide_strategy(running: Definitions | None, target: Definitions) -> Strategy:
    """Returns the strategy of a change from one commit to another."""
    if running is None:
        return Strategy(summary="Pipeline sync, nothing is known of what runs")
    before, after = dict(list_containers(running.task)), dict(list_containers(target.task))
    changes = [
        *(f"image {after[name]} of {name} added" for name in after if name not in before),
        *(f"image {before[name]} of {name} removed" for name in before if name not in after),
        *(
            f"image of {name} from {before[name]} to {after[name]}"
            for name in after
            if name in before and before[name] != after[name]
        ),
    ]
    if not changes:
        return Strategy(
            sync=SyncStrategy.QUICK_SYNC, summary="Quick sync, no image of a container has changed"
        )
    return Strategy(sync=SyncStrategy.PIPELINE, summary=f"Pipeline sync, {', '.join(changes)}")
