# SPDX-License-Identifier: Apache-2.0
"""What is out of sync is deployed again: after a while, and not for ever."""

from datetime import timedelta

import pytest

from pipecd_model.config import ApplicationConfig, load_application
from pipecd_model.trigger import (
    MOST_REPAIRS,
    SETTLED_SECONDS,
    LastDeployment,
    RepairDecision,
    on_out_of_sync,
)

NOON = 1_700_000_000.0
WINDOW = timedelta(minutes=5).total_seconds()


def config_of(trigger: str = "{onOutOfSync: {disabled: false}}") -> ApplicationConfig:
    head = "apiVersion: pipecd.dev/v1beta1\nkind: Application\n"
    text = f"{head}spec: {{name: a, trigger: {trigger}}}\n"
    return load_application(text, file="app.pipecd.yaml").config


def decide(
    *,
    trigger: str = "{onOutOfSync: {disabled: false}}",
    after: float = WINDOW,
    since: float = 1.0,
    repairs: int = 0,
    succeeded: bool = True,
    is_over: bool = True,
) -> RepairDecision:
    """Decides `after` seconds after the last deployment, out of sync since `since` after it."""
    last = LastDeployment(
        completed_at=NOON if is_over else None, succeeded=succeeded, repairs=repairs
    )
    return on_out_of_sync(config_of(trigger), now=NOON + after, since=NOON + since, last=last)


def test_it_is_off_unless_its_author_wants_it() -> None:
    assert not decide(trigger="{}").deploy


def test_it_is_deployed_when_the_last_deployment_is_over_for_long_enough() -> None:
    early = decide(after=WINDOW - 1)
    assert (early.deploy, early.retry_at) == (False, NOON + WINDOW)

    decision = decide()
    assert (decision.deploy, decision.repairs) == (True, 1)


def test_the_window_is_its_authors() -> None:
    trigger = "{onOutOfSync: {disabled: false, minWindow: 10s}}"
    assert decide(trigger=trigger, after=10).deploy
    assert not decide(trigger=trigger, after=9).deploy


def test_never_while_it_is_deployed() -> None:
    decision = decide(is_over=False)

    assert not decision.deploy
    assert decision.retry_at is not None


def test_never_after_a_failure() -> None:
    decision = decide(succeeded=False)

    assert (decision.deploy, decision.retry_at) == (False, None)


@pytest.mark.parametrize("repairs", range(MOST_REPAIRS))
def test_repairs_in_a_row_are_counted(repairs: int) -> None:
    assert decide(repairs=repairs).repairs == repairs + 1


def test_after_some_repairs_in_a_row_a_person_has_to_look() -> None:
    decision = decide(repairs=MOST_REPAIRS)

    assert (decision.deploy, decision.gave_up, decision.retry_at) == (False, True, None)
    assert "out of sync again after 3 repairs" in decision.reason
    assert decide(repairs=MOST_REPAIRS, after=30 * SETTLED_SECONDS).gave_up, "time alone is no help"


def test_what_was_in_sync_for_long_begins_a_new_row() -> None:
    long = SETTLED_SECONDS
    assert decide(repairs=MOST_REPAIRS, since=long, after=long).repairs == 1
    assert decide(repairs=MOST_REPAIRS, since=long - 1, after=long).gave_up
