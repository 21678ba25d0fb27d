# SPDX-License-Identifier: Apache-2.0
"""What planning and running rely on: tests that stand-ins and the real ones pass alike.

A subclass gives the fixture; see `packages/piped/tests/plugins/test_plugin_contract.py` and
`packages/piped/tests/source/test_sources_contract.py`.
"""

import json
from dataclasses import dataclass

import pytest

from pipecd_piped.git import NoCommitError
from pipecd_piped.plan.protocols import CommitSources, PluginCalls
from pipecd_piped.plugins.state import Phase
from pipecd_piped.schedule.services import LastSuccesses, Scripts
from pipecd_test_support.piped_parts import deployment
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.model.common_pb2 import ApplicationGitPath, SyncStrategy
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from pipecd_wire.plugin.deploymentapi import api_pb2 as api

READY_SECONDS = 60.0
"""For a process that starts on a loaded machine."""

PIPELINE = ("DUMMY_CANARY_ROLLOUT", "DUMMY_PRIMARY_ROLLOUT")
APPLICATION = {
    "apiVersion": "pipecd.dev/v1beta1",
    "kind": "Application",
    "spec": {"plugins": {"dummy": {"planning": {"strategy": "PIPELINE"}}}},
}
QUICK_SYNC = "DUMMY_SYNC"
ROLLBACK = "DUMMY_ROLLBACK"


def shape(stages: list[pb.PipelineStage]) -> list[tuple[str, int, bool]]:
    return [(stage.name, stage.index, stage.rollback) for stage in stages]


class PluginContract:
    """A plugin with the stages above that wants the pipeline; its fixture is called `plugin`."""

    async def test_a_plugin_that_can_be_called_is_in_the_phase_ready(
        self, plugin: PluginCalls
    ) -> None:
        await plugin.wait_ready(READY_SECONDS)

        assert (plugin.name, plugin.state.phase, plugin.was_ready) == ("dummy", Phase.READY, True)

    @pytest.mark.parametrize("rollback", [False, True])
    async def test_each_stage_of_a_pipeline_is_built_at_its_index(
        self, plugin: PluginCalls, rollback: bool
    ) -> None:
        await plugin.wait_ready(READY_SECONDS)

        answer = await plugin.build_pipeline_sync_stages(
            api.BuildPipelineSyncStagesRequest(
                rollback=rollback,
                stages=[
                    api.BuildPipelineSyncStagesRequest.StageConfig(
                        name=name, index=index, config=b"{}"
                    )
                    for index, name in enumerate(PIPELINE, start=3)
                ],
            )
        )

        forward = [(name, index, False) for index, name in enumerate(PIPELINE, start=3)]
        assert shape(list(answer.stages)) == forward + [(ROLLBACK, 3, True)] * rollback

    @pytest.mark.parametrize("rollback", [False, True])
    async def test_a_quick_sync_has_its_own_stage(
        self, plugin: PluginCalls, rollback: bool
    ) -> None:
        await plugin.wait_ready(READY_SECONDS)

        answer = await plugin.build_quick_sync_stages(
            api.BuildQuickSyncStagesRequest(rollback=rollback)
        )

        names = [(stage.name, stage.rollback) for stage in answer.stages]
        assert names == [(QUICK_SYNC, False)] + [(ROLLBACK, True)] * rollback

    async def test_a_plugin_says_how_to_deploy(self, plugin: PluginCalls) -> None:
        await plugin.wait_ready(READY_SECONDS)

        answer = await plugin.determine_strategy(question())

        assert (answer.unsupported, answer.sync_strategy) == (False, SyncStrategy.PIPELINE)

    async def test_a_stage_is_run_to_its_end(self, plugin: PluginCalls) -> None:
        await plugin.wait_ready(READY_SECONDS)
        stage = pb.PipelineStage(id="s1", name=PIPELINE[0], created_at=1, updated_at=1)
        run = api.ExecutePluginInput(
            deployment=deployment(deploy_targets_by_plugin={}, stages=[stage]),
            stage=stage,
            stage_config=b"{}",
            target_deployment_source=question().target_deployment_source,
        )

        answer = await plugin.execute_stage(run)

        assert answer.status == pb.STAGE_SUCCESS


def question() -> api.PlanPluginInput:
    """What a plugin is asked with: a commit, without its files."""
    source = DeploymentSource(
        application_directory="/nowhere",
        commit_hash="c1",
        application_config=json.dumps(APPLICATION).encode(),
        application_config_filename="app.pipecd.yaml",
    )
    return api.PlanPluginInput(deployment=deployment(), target_deployment_source=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcesCase:
    """Two commits of one application, the older one first."""

    sources: CommitSources
    git_path: ApplicationGitPath
    older: str
    newer: str
    older_file: str
    newer_file: str


class SourcesContract:
    """Sources whose fixture is called `case`; `base/x` differs between its commits."""

    async def test_a_commit_is_read_without_its_files(self, case: SourcesCase) -> None:
        for commit, file in ((case.older, case.older_file), (case.newer, case.newer_file)):
            source = await case.sources.read(case.git_path, commit, config_filename="")

            assert source.commit_hash == commit
            assert source.application_config.decode() == file
            assert not source.application_directory

    async def test_two_that_open_a_commit_have_a_folder_each(self, case: SourcesCase) -> None:
        async with (
            case.sources.open(case.git_path, case.newer, config_filename="") as one,
            case.sources.open(case.git_path, case.newer, config_filename="") as other,
        ):
            assert one.application_directory != other.application_directory
            for source in (one, other):
                assert source.application_directory.endswith(f"/{case.git_path.path}")
                assert source.commit_hash == case.newer
                assert source.application_config.decode() == case.newer_file

    async def test_several_commits_are_reserved_before_they_are_opened(
        self, case: SourcesCase
    ) -> None:
        async with case.sources.reserve(case.git_path, [case.older, case.newer]) as reserved:
            opened = [
                reserved.open(case.git_path, commit, config_filename="")
                for commit in (case.older, case.newer)
            ]
        async with opened[0] as older, opened[1] as newer:
            assert older.application_directory != newer.application_directory
            assert [older.commit_hash, newer.commit_hash] == [case.older, case.newer]

    async def test_a_commit_that_is_not_there_is_named(self, case: SourcesCase) -> None:
        missing = "f" * 40

        with pytest.raises(NoCommitError, match=missing[:7]):
            await case.sources.read(case.git_path, missing, config_filename="")
        with pytest.raises(NoCommitError, match=missing[:7]):
            async with case.sources.open(case.git_path, missing, config_filename=""):
                pass

    async def test_the_files_that_differ_are_named_from_the_root(self, case: SourcesCase) -> None:
        changed = await case.sources.list_changed_paths(case.git_path, case.older, case.newer)

        assert sorted(changed) == ["apps/web/app.pipecd.yaml", "base/x"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptsCase:
    """A deployment with one script, of one stage, which runs."""

    scripts: Scripts
    deployment_id: str
    stage_id: str


class ScriptsContract:
    """Scripts whose fixture is called `case`."""

    async def test_a_stage_without_scripts_has_none_to_stop_or_end(self, case: ScriptsCase) -> None:
        assert not case.scripts.stop(case.deployment_id, "another")
        assert await case.scripts.end(case.deployment_id, only="another") == 0
        assert await case.scripts.end(case.deployment_id, but=case.stage_id) == 0

    async def test_a_script_is_on_record_while_it_runs_and_afterwards(
        self, case: ScriptsCase
    ) -> None:
        assert case.scripts.stop(case.deployment_id, case.stage_id)

        assert await case.scripts.end(case.deployment_id, only=case.stage_id) == 1

        assert case.scripts.stop(case.deployment_id, case.stage_id)
        assert await case.scripts.end(case.deployment_id) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessesCase:
    """Two applications: one has run `known`, the other has never been deployed with success."""

    successes: LastSuccesses
    deployed: str
    known: ApplicationDeploymentReference
    new: str


class SuccessesContract:
    """Last successes whose fixture is called `case`."""

    async def test_what_an_application_runs_is_known(self, case: SuccessesCase) -> None:
        assert await case.successes.get(case.deployed) == case.known
        assert await case.successes.get(case.new) is None

    async def test_a_newer_success_replaces_it(self, case: SuccessesCase) -> None:
        newer = ApplicationDeploymentReference(deployment_id="newer")
        for application_id in (case.deployed, case.new):
            case.successes.remember(application_id, newer)

            assert await case.successes.get(application_id) == newer
