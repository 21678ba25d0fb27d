# SPDX-License-Identifier: Apache-2.0
"""Strategy: the order in which quick sync and pipeline are decided."""

import pytest

from pipecd_model import strategy
from pipecd_model.config import ApplicationConfig, load_application
from pipecd_model.errors import PluginError
from pipecd_model.strategy import PIPELINE, QUICK_SYNC, Answer, Choice
from pipecd_wire.model import common_pb2
from pipecd_wire.model.deployment_pb2 import Commit, DeploymentTrigger

STAGES = "pipeline: {stages: [{name: K8S_SYNC}]}"


def application(spec: str = STAGES) -> ApplicationConfig:
    text = f"apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec: {{{spec}}}\n"
    return load_application(text, file="app.pipecd.yaml").config


def choose(
    config: ApplicationConfig,
    *,
    asked: common_pb2.SyncStrategy.ValueType = common_pb2.AUTO,
    message: str = "change",
    commander: str = "",
    first: bool = False,
    quick_sync_offered: bool = True,
) -> common_pb2.SyncStrategy.ValueType | None:
    trigger = DeploymentTrigger(
        commit=Commit(message=message), sync_strategy=asked, commander=commander
    )
    choice = strategy.choose(config, trigger, first=first, quick_sync_offered=quick_sync_offered)
    return None if choice is None else choice.strategy


@pytest.mark.parametrize("asked", [QUICK_SYNC, PIPELINE])
def test_what_was_asked_for_comes_first(asked: common_pb2.SyncStrategy.ValueType) -> None:
    config = application(f"{STAGES}, planner: {{alwaysUsePipeline: true}}")

    assert choose(config, asked=asked, first=True) == asked


def test_the_summary_of_the_wish_is_kept() -> None:
    trigger = DeploymentTrigger(sync_strategy=PIPELINE, strategy_summary="Ann said so")

    choice = strategy.choose(application(), trigger, first=False, quick_sync_offered=True)

    assert choice == Choice(strategy=PIPELINE, summary="Ann said so")


def test_without_stages_it_is_a_quick_sync() -> None:
    config = application("plugins: {kubernetes: {}}, planner: {alwaysUsePipeline: true}")

    assert choose(config) == QUICK_SYNC


def test_always_use_pipeline_beats_the_first_deployment_and_the_message() -> None:
    config = application(
        f"{STAGES}, planner: {{alwaysUsePipeline: true}}, commitMatcher: {{quickSync: change}}"
    )

    assert choose(config, first=True) == PIPELINE


@pytest.mark.parametrize("first", [True, False])
def test_the_commit_message_chooses(first: bool) -> None:
    config = application(f"{STAGES}, commitMatcher: {{pipeline: ^Roll, quickSync: ^Fix}}")

    assert choose(config, message="Roll out", first=first) == PIPELINE
    assert choose(config, message="Fix it", first=first) == QUICK_SYNC


def test_when_both_patterns_match_the_pipeline_is_taken() -> None:
    config = application(f"{STAGES}, commitMatcher: {{pipeline: Fix, quickSync: Fix}}")

    assert choose(config, message="Fix it") == PIPELINE


def test_the_commit_message_does_not_count_when_somebody_asked() -> None:
    config = application(f"{STAGES}, commitMatcher: {{pipeline: Roll}}")

    assert choose(config, message="Roll out", commander="ann") is None


def test_the_first_deployment_is_a_quick_sync() -> None:
    assert choose(application(), first=True) == QUICK_SYNC


def test_later_deployments_are_for_the_plugins_to_decide() -> None:
    assert choose(application()) is None


@pytest.mark.parametrize("first", [True, False])
def test_an_application_of_stage_plugins_alone_runs_its_pipeline_also_the_first_time(
    first: bool,
) -> None:
    """Scripts and waits have no quick sync: the first deployment would have no stage at all."""
    config = application("pipeline: {stages: [{name: SCRIPT_RUN, with: {run: ./deploy}}]}")

    assert choose(config, first=first, quick_sync_offered=False) == PIPELINE


def test_a_quick_sync_that_was_asked_for_is_not_turned_into_a_pipeline() -> None:
    """Running scripts against the wish of a person would be worse than saying that it cannot be."""
    assert choose(application(), asked=QUICK_SYNC, quick_sync_offered=False) == QUICK_SYNC


def answer(plugin: str, chosen: common_pb2.SyncStrategy.ValueType) -> Answer:
    return Answer(plugin=plugin, choice=Choice(strategy=chosen, summary=plugin))


def test_the_first_plugin_that_wants_a_pipeline_wins() -> None:
    answers = [answer("a", QUICK_SYNC), answer("b", PIPELINE), answer("c", PIPELINE)]

    assert strategy.choose_by_answers(answers).summary == "b"


def test_otherwise_the_last_opinion_stands() -> None:
    answers = [answer("a", QUICK_SYNC), answer("b", QUICK_SYNC), Answer(plugin="wait")]

    assert strategy.choose_by_answers(answers) == Choice(strategy=QUICK_SYNC, summary="b")


def test_a_plugin_that_fails_is_passed_over_while_another_has_an_opinion() -> None:
    answers = [Answer(plugin="a", error="broken"), answer("b", QUICK_SYNC)]

    assert strategy.choose_by_answers(answers).strategy == QUICK_SYNC


def test_if_nobody_can_say_planning_fails_with_what_each_said() -> None:
    answers = [Answer(plugin="a", error="broken"), Answer(plugin="wait")]

    with pytest.raises(PluginError, match="a: broken"):
        strategy.choose_by_answers(answers)


def test_if_nobody_has_an_opinion_the_pipeline_runs() -> None:
    assert strategy.choose_by_answers([Answer(plugin="wait")]).strategy == PIPELINE
