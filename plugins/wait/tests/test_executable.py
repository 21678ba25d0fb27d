# SPDX-License-Identifier: Apache-2.0
"""The executable `pipecd-plugin-wait` as piped starts it."""

import pytest

from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, executable, start_plugin
from pipecd_wire.model import deployment_pb2

COMMAND = [executable("pipecd-plugin-wait")]


@pytest.mark.parametrize(
    ("mode", "managed"),
    [
        (LaunchMode.DESCRIPTOR, True),
        (LaunchMode.COMMAND_LINE, True),
        (LaunchMode.COMMAND_LINE, False),
    ],
    ids=["installed", "invited", "go"],
)
async def test_a_wait_runs_and_its_log_and_start_time_arrive(
    mode: LaunchMode, managed: bool
) -> None:
    async with (
        FakePiped(managed=managed) as piped,
        start_plugin(piped, COMMAND, name="wait", mode=mode) as plugin,
    ):
        answer = await plugin.execute("WAIT", {"duration": "300ms"}, stage_id="s1")

        assert answer.status == deployment_pb2.STAGE_SUCCESS
        assert answer.message == ""
        assert piped.log("s1").lines[0].startswith("Waiting 300ms, until ")
        assert piped.log("s1").sealed
        assert piped.stage_metadata["s1"]["startTime"].isdigit()
