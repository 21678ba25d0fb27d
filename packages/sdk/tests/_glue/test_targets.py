# SPDX-License-Identifier: Apache-2.0
"""An application without a deploy target is told how it gets one."""

from collections.abc import Sequence

import pytest

from pipecd_sdk._glue.entry import Setup
from pipecd_sdk._glue.execute import require_targets
from pipecd_sdk.context import DeployTarget
from pipecd_wire.rpc import StatusError


def make_setup(*names: str) -> Setup:
    targets = {name: DeployTarget(name=name, labels={}, config=None) for name in names}
    return Setup(name="files", port=0, targets=targets)


@pytest.mark.parametrize(
    ("setup", "names", "sentence"),
    [
        (
            make_setup("west", "east"),
            (),
            (
                "the deployment has no deploy target of the plugin 'files' (it has east, west;"
                " choose under deployTargets in the application file, or with: pipectl application"
                " update hello --deploy-target files=east)"
            ),
        ),
        (
            make_setup("east"),
            ("esat",),
            (
                "unknown deploy target 'esat' (it has east; choose under deployTargets in the"
                " application file, or with: pipectl application update hello --deploy-target"
                " files=east)"
            ),
        ),
        (
            make_setup(),
            (),
            (
                "the deployment has no deploy target of the plugin 'files' (the plugin 'files'"
                " has none in the piped's configuration: add one there)"
            ),
        ),
    ],
)
def test_a_missing_target_names_the_command_that_gives_one(
    setup: Setup, names: Sequence[str], sentence: str
) -> None:
    with pytest.raises(StatusError) as refused:
        require_targets(setup, names, whose="the deployment", application="hello")

    assert sentence in str(refused.value)
