# SPDX-License-Identifier: Apache-2.0
"""How a deployment is planned: plugins, strategy, stages, and a sentence for each fault."""

import json
from typing import Any

import pytest

from pipecd_model.config import ConfigFaultsError
from pipecd_model.errors import (
    AmbiguousStageError,
    ConfigError,
    NoPluginForStageError,
    PipecdError,
    PluginError,
)
from pipecd_piped.git import RemoteError
from pipecd_piped.plan.planner import DeploymentPlan, Planner
from pipecd_test_support.piped_parts import (
    FakePlugin,
    FakePlugins,
    FakeSources,
    application_file,
    deployment,
    trigger,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.model.common_pb2 import PIPELINE, QUICK_SYNC, ApplicationGitPath, ArtifactVersion
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from pipecd_wire.plugin.deploymentapi import api_pb2 as api

BEFORE = ApplicationDeploymentReference(
    deployment_id="d0",
    trigger=trigger("c0"),
    config_filename="older.pipecd.yaml",
    started_at=1,
)


def platform(**options: Any) -> FakePlugin:
    options = {"rollback": "P_ROLLBACK", "quick": ["P_SYNC"], **options}
    return FakePlugin("platform", "P_SYNC", "P_ROLLOUT", "P_ROLLBACK", **options)


def scripts() -> FakePlugin:
    return FakePlugin(
        "scriptrun", "SCRIPT_RUN", "SCRIPT_RUN_ROLLBACK", rollback_each="SCRIPT_RUN_ROLLBACK"
    )


def answer(strategy: int, summary: str = "because") -> api.DetermineStrategyResponse:
    return api.DetermineStrategyResponse(sync_strategy=strategy, summary=summary)  # type: ignore[arg-type]


async def plan(
    file: str,
    *plugins: FakePlugin,
    running: ApplicationDeploymentReference | None = None,
    **more: Any,
) -> DeploymentPlan:
    sources = FakeSources({"c0": file, "c1": file})
    planned = await Planner(FakePlugins(*plugins), sources).plan(deployment(**more), running)
    assert sources.open_now == 0
    return planned


def shape(planned: DeploymentPlan) -> list[tuple[str, int]]:
    return [(stage.name, stage.index) for stage in planned.stages]


async def test_a_pipeline_is_split_by_plugin_and_put_together_in_order() -> None:
    file = application_file(["P_ROLLOUT", "SCRIPT_RUN", "P_SYNC"])

    planned = await plan(file, platform(), scripts(), trigger=trigger(sync_strategy=PIPELINE))

    assert shape(planned) == [
        ("P_ROLLOUT", 0),
        ("SCRIPT_RUN", 1),
        ("P_SYNC", 2),
        ("P_ROLLBACK", 0),
        ("SCRIPT_RUN_ROLLBACK", 1),
    ]


async def test_each_forward_stage_requires_the_one_before_it() -> None:
    file = application_file(["P_ROLLOUT", "SCRIPT_RUN", "P_SYNC"])

    planned = await plan(file, platform(), scripts(), trigger=trigger(sync_strategy=PIPELINE))

    first, second, third, *_ = planned.stages
    assert list(first.requires) == []
    assert list(second.requires) == [first.id]
    assert list(third.requires) == [second.id]


async def test_the_chosen_plugin_is_kept_with_the_stage() -> None:
    file = application_file(["P_ROLLOUT", "SCRIPT_RUN"])

    planned = await plan(file, platform(), scripts(), trigger=trigger(sync_strategy=PIPELINE))

    assert [stage.metadata["pipecd/plugin"] for stage in planned.stages] == [
        "platform",
        "scriptrun",
        "platform",
        "scriptrun",
    ]


async def test_stages_are_ready_to_be_stored() -> None:
    planned = await plan(application_file(["SCRIPT_RUN"]), scripts())

    for stage in planned.stages:
        assert len(stage.id) == 36
        assert stage.created_at > 1
        assert stage.updated_at > 1
        assert stage.status == pb.STAGE_NOT_STARTED_YET


async def test_a_plugin_gets_the_options_and_the_place_of_its_stages_only() -> None:
    asked: list[api.BuildPipelineSyncStagesRequest] = []
    plugin = scripts()
    build = plugin.build_pipeline_sync_stages

    async def keep(request: api.BuildPipelineSyncStagesRequest) -> Any:
        asked.append(request)
        return await build(request)

    plugin.build_pipeline_sync_stages = keep  # type: ignore[method-assign]
    entry = {"name": "SCRIPT_RUN", "desc": "try it", "with": {"run": "true"}}
    file = application_file(["P_ROLLOUT", entry])

    await plan(file, platform(), plugin, trigger=trigger(sync_strategy=PIPELINE))

    [request] = asked
    assert request.rollback
    [stage] = request.stages
    assert (stage.name, stage.desc, stage.index) == ("SCRIPT_RUN", "try it", 1)
    assert json.loads(stage.config) == {"run": "true"}


async def test_without_auto_rollback_no_rollback_stage_is_planned() -> None:
    file = application_file(["P_ROLLOUT", "SCRIPT_RUN"], planner={"autoRollback": False})

    planned = await plan(file, platform(), scripts(), trigger=trigger(sync_strategy=PIPELINE))

    assert shape(planned) == [("P_ROLLOUT", 0), ("SCRIPT_RUN", 1)]


@pytest.mark.parametrize("running", [None, BEFORE], ids=["first", "later"])
async def test_an_application_of_stage_plugins_alone_plans_as_a_pipeline(
    running: ApplicationDeploymentReference | None,
) -> None:
    """Upstream cannot plan it, neither the first time nor later (W10)."""
    file = application_file(["WAIT", "SCRIPT_RUN"])
    wait = FakePlugin("wait", "WAIT")

    planned = await plan(file, wait, scripts(), running=running)

    assert planned.strategy == PIPELINE
    assert shape(planned)[:2] == [("WAIT", 0), ("SCRIPT_RUN", 1)]


async def test_a_first_deployment_with_a_platform_is_a_quick_sync() -> None:
    planned = await plan(application_file(["P_ROLLOUT", "SCRIPT_RUN"]), platform(), scripts())

    assert planned.strategy == QUICK_SYNC
    assert shape(planned) == [("P_SYNC", 0), ("P_ROLLBACK", 0)]


async def test_on_a_first_deployment_no_plugin_is_asked_for_a_strategy() -> None:
    """There is nothing it could compare with."""
    plugin = platform(strategy=answer(PIPELINE))

    await plan(application_file(["P_ROLLOUT"]), plugin)

    assert "strategy" not in plugin.asked
    assert all(not ask.HasField("running_deployment_source") for ask in plugin.planned_with)


async def test_later_the_plugins_decide() -> None:
    plugin = platform(strategy=answer(PIPELINE, "the image changed"))

    planned = await plan(application_file(["P_ROLLOUT"]), plugin, running=BEFORE)

    assert (planned.strategy, planned.summary) == (PIPELINE, "the image changed")
    [asked] = plugin.planned_with
    assert asked.running_deployment_source.commit_hash == "c0"
    assert asked.running_deployment_source.application_config_filename == "older.pipecd.yaml"


async def test_a_running_commit_that_git_has_lost_does_not_block_the_application() -> None:
    """A branch was rewritten: every later deployment would compare with the same lost commit."""
    plugin = platform(strategy=answer(QUICK_SYNC))
    file = application_file(["P_ROLLOUT"])
    sources = FakeSources({"c1": file})

    planned = await Planner(FakePlugins(plugin), sources).plan(deployment(), BEFORE)

    assert planned.strategy == PIPELINE
    assert "gone from the repository" in planned.summary
    assert "strategy" not in plugin.asked, "there is nothing it could compare with"
    assert sources.open_now == 0


async def test_a_remote_that_is_away_is_not_taken_for_a_lost_commit() -> None:
    class Away(FakeSources):
        async def read(
            self, path: ApplicationGitPath, commit: str, *, config_filename: str
        ) -> DeploymentSource:
            if commit == "c0":
                raise RemoteError("cannot reach the remote")
            return await super().read(path, commit, config_filename=config_filename)

    sources = Away({"c1": application_file(["P_ROLLOUT"])})

    with pytest.raises(RemoteError, match="cannot reach"):
        await Planner(FakePlugins(platform()), sources).plan(deployment(), BEFORE)


async def test_a_plugin_that_fails_to_decide_leaves_the_careful_way() -> None:
    plugin = platform(strategy=PluginError("the plugin 'platform' answered INTERNAL: oops"))

    planned = await plan(application_file(["P_ROLLOUT"]), plugin, running=BEFORE)

    assert planned.strategy == PIPELINE
    assert "oops" in planned.summary


async def test_a_plugin_that_fails_to_name_versions_does_not_keep_the_commit_back() -> None:
    plugin = platform()

    async def broken(_: api.PlanPluginInput) -> api.DetermineVersionsResponse:
        raise PluginError("no idea")

    plugin.determine_versions = broken  # type: ignore[assignment, method-assign]

    planned = await plan(application_file(["P_ROLLOUT"]), plugin)

    assert [(each.kind, each.version) for each in planned.versions] == [
        (ArtifactVersion.UNKNOWN, "unknown")
    ]


async def test_an_application_without_a_platform_is_planned_without_its_files() -> None:
    """A tree costs a checkout: who delivers no version need not look into one."""
    file = application_file(["SCRIPT_RUN"])
    sources = FakeSources({"c0": file, "c1": file})
    plugin = scripts()

    planned = await Planner(FakePlugins(plugin), sources).plan(deployment(), BEFORE)

    assert sources.opened == []
    assert "versions" not in plugin.asked
    assert planned.source.commit_hash == "c1"
    assert [each.version for each in planned.versions] == ["unknown"]


async def test_the_plugin_that_a_stage_names_is_taken() -> None:
    """Two makers of one platform: the application decides."""
    file = application_file([{"name": "WAIT", "plugin": "other"}])

    planned = await plan(file, FakePlugin("wait", "WAIT"), FakePlugin("other", "WAIT"))

    assert planned.stages[0].metadata["pipecd/plugin"] == "other"


async def test_the_plugin_of_the_deploy_targets_is_taken() -> None:
    file = application_file(["P_ROLLOUT"])
    second = FakePlugin("second", "P_ROLLOUT")

    planned = await plan(
        file,
        platform(quick=[]),
        second,
        deploy_targets_by_plugin={"second": pb.DeployTargets(deploy_targets=["dev"])},
    )

    assert planned.stages[0].metadata["pipecd/plugin"] == "second"


async def test_a_stage_that_two_plugins_offer_is_refused_with_their_names() -> None:
    with pytest.raises(AmbiguousStageError, match="'other', 'wait'"):
        await plan(
            application_file(["WAIT"]), FakePlugin("wait", "WAIT"), FakePlugin("other", "WAIT")
        )


async def test_without_a_pipeline_the_named_plugins_sync() -> None:
    planned = await plan(application_file([], plugins={"platform": {}}), platform(), scripts())

    assert planned.strategy == QUICK_SYNC
    assert shape(planned) == [("P_SYNC", 0), ("P_ROLLBACK", 0)]


@pytest.mark.parametrize(
    ("file", "kind", "sentence"),
    [
        pytest.param("spec: [", ConfigFaultsError, "app.pipecd.yaml:", id="broken YAML"),
        pytest.param(
            application_file(["SCRIPT_RUM"]),
            NoPluginForStageError,
            "no plugin offers the stage 'SCRIPT_RUM'",
            id="misspelt stage",
        ),
        pytest.param(
            application_file([]), ConfigError, "neither a pipeline nor plugins", id="nothing"
        ),
        pytest.param(
            application_file([], plugins={"kubernetes": {}}),
            PluginError,
            "names the plugin 'kubernetes', which this piped does not run",
            id="plugin not there",
        ),
        pytest.param(
            application_file(["SCRIPT_RUN"], deployTargets={"kubernetse": ["dev"]}),
            PluginError,
            "names the plugin 'kubernetse', which this piped does not run",
            id="targets of a plugin that is not there",
        ),
        pytest.param(
            application_file([], plugins={"scriptrun": {}}),
            ConfigError,
            "no plugin of the application offers a quick sync",
            id="no quick sync",
        ),
    ],
)
async def test_a_fault_of_the_application_is_told_in_a_sentence(
    file: str, kind: type[PipecdError], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        await plan(file, scripts())


async def test_a_quick_sync_that_was_asked_for_but_is_not_offered_is_refused() -> None:
    with pytest.raises(ConfigError, match="offers a quick sync"):
        await plan(
            application_file(["SCRIPT_RUN"]), scripts(), trigger=trigger(sync_strategy=QUICK_SYNC)
        )


async def test_a_pipeline_that_was_asked_for_but_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no pipeline"):
        await plan(
            application_file([], plugins={"platform": {}}),
            platform(),
            trigger=trigger(sync_strategy=PIPELINE),
        )


@pytest.mark.parametrize(
    ("answered", "sentence"),
    [
        ([("WAIT", 3, False)], "with index 3, which it was not asked about"),
        ([("WAIT", 0, False), ("WAIT", 0, False)], "with index 0 twice"),
        ([("UNDO", 0, True), ("UNDO", 0, True)], "with index 0 twice"),
    ],
)
async def test_an_answer_that_breaks_the_rules_of_indexes_is_refused(
    answered: list[tuple[str, int, bool]], sentence: str
) -> None:
    plugin = FakePlugin("wait", "WAIT")

    async def wrong(
        _: api.BuildPipelineSyncStagesRequest,
    ) -> api.BuildPipelineSyncStagesResponse:
        stages = [
            pb.PipelineStage(name=name, index=index, rollback=rollback)
            for name, index, rollback in answered
        ]
        return api.BuildPipelineSyncStagesResponse(stages=stages)

    plugin.build_pipeline_sync_stages = wrong  # type: ignore[assignment, method-assign]

    with pytest.raises(PluginError, match=sentence):
        await plan(application_file(["WAIT"]), plugin)


async def test_a_rollback_stage_may_share_the_index_of_its_forward_stage() -> None:
    planned = await plan(application_file(["SCRIPT_RUN"]), scripts())

    assert shape(planned) == [("SCRIPT_RUN", 0), ("SCRIPT_RUN_ROLLBACK", 0)]


async def test_a_fault_that_a_plugin_finds_in_its_options_is_passed_on() -> None:
    plugin = scripts()

    async def refuses(
        _: api.BuildPipelineSyncStagesRequest,
    ) -> api.BuildPipelineSyncStagesResponse:
        raise PluginError(
            "the plugin 'scriptrun' answered INVALID_ARGUMENT: stages[0].run: missing"
        )

    plugin.build_pipeline_sync_stages = refuses  # type: ignore[assignment, method-assign]

    with pytest.raises(PluginError, match="run: missing"):
        await plan(application_file(["SCRIPT_RUN"]), plugin)
