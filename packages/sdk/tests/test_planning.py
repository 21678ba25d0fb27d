# SPDX-License-Identifier: Apache-2.0
"""Stage lists: options checked, indexes kept."""

from collections.abc import Iterable, Sequence

import pytest

from pipecd_sdk import (
    DISPLAY_KEY,
    DeploymentPlugin,
    Operation,
    PlannedStage,
    RequestedStage,
    StageConfig,
    StageContext,
    StagePlugin,
    stage,
)
from pipecd_sdk._planning import BadPlanError, StageRequest, plan_pipeline, target_faults
from pipecd_sdk.config import OptionFaultsError


class Options(StageConfig):
    count: int


class Platform(DeploymentPlugin):
    @stage("SYNC", quick_sync=True, desc="Do it")
    async def sync(self, ctx: StageContext, options: Options) -> None: ...

    @stage("UNDO", rollback=True, desc="Undo it")
    async def undo(self, ctx: StageContext) -> None: ...


def request(index: int, config: bytes = b'{"count": 1}', name: str = "SYNC") -> StageRequest:
    return StageRequest(name=name, index=index, config=config)


def test_stages_keep_their_places_and_the_rollback_takes_the_first() -> None:
    planned = plan_pipeline(Platform(), [request(5), request(2)], rollback=True)

    assert [(each.name, each.index, each.rollback) for each in planned] == [
        ("SYNC", 5, False),
        ("SYNC", 2, False),
        ("UNDO", 2, True),
    ]
    assert {each.operation for each in planned} == {Operation.NONE}


def test_the_authors_description_wins() -> None:
    first = StageRequest(name="SYNC", index=0, desc="My words", config=b'{"count": 1}')

    planned = plan_pipeline(Platform(), [first, request(1)], rollback=False)

    assert [each.desc for each in planned] == ["My words", "Do it"]


def test_no_stage_means_no_rollback_stage() -> None:
    assert plan_pipeline(Platform(), [], rollback=True) == []


def test_the_faults_of_all_stages_are_told_at_once() -> None:
    wrong = [request(0, b'{"count": "two"}'), request(1), request(3, b"{}"), request(4, b"no JSON")]

    with pytest.raises(OptionFaultsError) as refused:
        plan_pipeline(Platform(), wrong, rollback=False)

    assert [fault.path for fault in refused.value.faults] == [
        "stages[0].with.count",
        "stages[3].with.count",
        "stages[4].with",
    ]
    assert refused.value.status == "INVALID_ARGUMENT"


def test_a_stage_of_somebody_else_is_refused() -> None:
    with pytest.raises(OptionFaultsError, match=r"stages\[1\]: this plugin has no stage 'OTHER'"):
        plan_pipeline(Platform(), [request(0), request(1, name="OTHER")], rollback=False)


def test_a_very_long_list_of_faults_still_fits_into_an_answer() -> None:
    """A status message travels in a header; one that is too long would hide all of them."""
    wrong = [request(index, b'{"count": "' + b"x" * 9000 + b'"}') for index in range(100)]

    with pytest.raises(OptionFaultsError) as refused:
        plan_pipeline(Platform(), wrong, rollback=False)

    assert len(refused.value.faults) == 100
    assert str(refused.value).endswith("\nand 80 more")
    assert len(str(refused.value).encode()) < 8000


@pytest.mark.parametrize(
    ("planned", "complaint"),
    [
        ([PlannedStage(name="ONLY", index=7)], "planned ONLY at 7, which was not asked for"),
        ([PlannedStage(name="ONLY", index=0)] * 2, "planned 2 stages at 0"),
        ([PlannedStage(name="ONLY", index=0, rollback=True)] * 2, "planned 2 stages at 0"),
        ([PlannedStage(name="WHO", index=0)], "planned the stage 'WHO', which it does not offer"),
    ],
)
def test_a_plan_that_breaks_the_rules_is_a_bug(planned: list[PlannedStage], complaint: str) -> None:
    class Careless(StagePlugin):
        @stage("ONLY")
        async def only(self, ctx: StageContext) -> None: ...

        def plan(
            self, requested: Sequence[RequestedStage], *, rollback: bool
        ) -> Iterable[PlannedStage]:
            return planned

    with pytest.raises(BadPlanError, match=complaint):
        plan_pipeline(Careless(), [request(0, name="ONLY")], rollback=True)


def test_a_forward_and_a_rollback_stage_may_share_a_place() -> None:
    planned = plan_pipeline(Platform(), [request(0)], rollback=True)

    assert [each.index for each in planned] == [0, 0]


def test_a_plugin_may_take_one_deploy_target_only() -> None:
    class Single(Platform):
        takes_one_target = True

    (fault,) = target_faults(Single(), ["tokyo", "osaka"])

    assert fault.path == "deployTargets"
    assert fault.message.endswith("has one deploy target here, and this one has 2: tokyo, osaka")
    assert target_faults(Single(), ["tokyo"]) == []
    assert target_faults(Platform(), ["tokyo", "osaka"]) == []


def test_what_a_plugin_says_of_a_stage_is_shown_beside_it() -> None:
    class Talkative(Platform):
        def describe_stage(self, requested: RequestedStage) -> str:
            return f"{requested.config.count} of them"

    first, undo = plan_pipeline(Talkative(), [request(0)], rollback=True)

    assert first.metadata == {DISPLAY_KEY: "1 of them"}
    assert undo.metadata == {}
