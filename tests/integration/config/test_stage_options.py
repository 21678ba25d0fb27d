# SPDX-License-Identifier: Apache-2.0
"""What lint knows of a stage's options and what its plugin says of them are the same."""

from typing import Any

import pytest
from pipecd_plugin_scriptrun.config import ScriptConfig
from pipecd_plugin_scriptrun.customsync import CustomSyncConfig
from pipecd_plugin_wait.plugin import WaitConfig
from pipecd_plugin_waitapproval.plugin import ApprovalConfig

from pipecd_model.config import decode
from pipecd_model.config.options import OPTIONS
from pipecd_model.config.shape import shape

PLUGINS: dict[str, Any] = {
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
        ("CUSTOM_SYNC", {}),
        ("CUSTOM_SYNC", {"run": "a", "envs": {"A": "b"}}),
    ],
)
def test_lint_and_plugin_agree(stage: str, options: dict[str, Any]) -> None:
    def told(cls: Any) -> tuple[set[str], set[str]]:
        _, found = decode(cls, options)
        return (
            {str(each.path[0]) for each in found.faults},
            {str(each.path[0]) for each in found.warnings},
        )

    assert told(OPTIONS[stage]) == told(PLUGINS[stage])


@pytest.mark.parametrize("stage", PLUGINS)
def test_lint_knows_every_option_of_a_plugin(stage: str) -> None:
    known = {each.key for each in shape(OPTIONS[stage]).fields}
    assert known >= {each.key for each in shape(PLUGINS[stage]).fields}
