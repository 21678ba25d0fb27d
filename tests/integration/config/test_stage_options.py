# SPDX-License-Identifier: Apache-2.0
"""Lint says of a stage's options what its plugin says, word for word, without running it."""

from typing import Any

import pytest
from pipecd_plugin_files.config import CanaryConfig
from pipecd_plugin_scriptrun.config import ScriptConfig
from pipecd_plugin_scriptrun.customsync import CustomSyncConfig
from pipecd_plugin_wait.plugin import WaitConfig
from pipecd_plugin_waitapproval.plugin import ApprovalConfig

from pipecd_model.config import decode
from pipecd_model.known_plugins import find_by_stage
from pipecd_model.lint.schemas import judge
from pipecd_sdk import StageConfig

PLUGINS: dict[str, type[StageConfig]] = {
    "FILES_CANARY_ROLLOUT": CanaryConfig,
    "WAIT": WaitConfig,
    "WAIT_APPROVAL": ApprovalConfig,
    "SCRIPT_RUN": ScriptConfig,
    "CUSTOM_SYNC": CustomSyncConfig,
}


@pytest.mark.parametrize(
    ("stage", "options"),
    [
        ("WAIT", {}),
        ("WAIT", {"duration": "5m"}),
        ("WAIT", {"duration": "0s"}),
        ("WAIT", {"duration": "-1s"}),
        ("WAIT", {"duration": None}),
        ("WAIT", {"duration": "1d"}),
        ("WAIT", {"duration": "5m", "other": 1}),
        ("WAIT_APPROVAL", {}),
        ("WAIT_APPROVAL", {"approvers": ["a"], "minApproverNum": 1}),
        ("WAIT_APPROVAL", {"approvers": ["a", "a"], "minApproverNum": 2}),
        ("WAIT_APPROVAL", {"minApproverNum": -1}),
        ("WAIT_APPROVAL", {"minApproverNum": 3}),
        ("WAIT_APPROVAL", {"approvers": "a"}),
        ("SCRIPT_RUN", {}),
        ("SCRIPT_RUN", {"run": "a"}),
        ("SCRIPT_RUN", {"runs": ["a", "b"], "runsOnRollback": ["c"]}),
        ("SCRIPT_RUN", {"run": "a", "env": {"A": 1}}),
        ("SCRIPT_RUN", {"run": 5}),
        ("SCRIPT_RUN", {"run": "a", "envs": {"A": "b"}}),
        ("SCRIPT_RUN", {"run": "a", "runs": ["b"]}),
        ("SCRIPT_RUN", {"run": "a", "onRollback": "b", "runsOnRollback": ["c"]}),
        ("SCRIPT_RUN", {"run": " ", "onInterrupted": "rerunn"}),
        ("CUSTOM_SYNC", {}),
        ("CUSTOM_SYNC", {"run": "a", "env": {"A": "b"}}),
        ("FILES_CANARY_ROLLOUT", {}),
        ("FILES_CANARY_ROLLOUT", {"Targets": ["a"], "percentage": 30}),
        ("FILES_CANARY_ROLLOUT", {"percentage": "101%"}),
        ("FILES_CANARY_ROLLOUT", {"percentage": "half", "labels": {"a": 1}}),
        ("CUSTOM_SYNC", {"run": "a", "envs": {"A": "b"}}),
    ],
)
def test_lint_says_what_the_plugin_says(stage: str, options: dict[str, Any]) -> None:
    plugin = find_by_stage(stage)
    assert plugin is not None
    _, by_plugin = decode(PLUGINS[stage], options, strict=True)

    assert judge(plugin.stages[stage], options, ()) == by_plugin
