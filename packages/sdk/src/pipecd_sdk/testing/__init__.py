# SPDX-License-Identifier: Apache-2.0
"""What a plugin author tests with; used by our own plugins first.

`StageHarness` runs a plugin's handlers in the test itself, with `FakeClock` for time.
`pipecd_sdk.testing.piped` starts its executable as piped does and speaks gRPC with it.
"""

from pipecd_sdk.testing.clock import NOON, FakeClock
from pipecd_sdk.testing.harness import LogLine, StageHarness, deploy_target, example_deployment
from pipecd_sdk.testing.in_memory import InMemoryMetadata, InMemoryObjects, InMemoryTools

__all__ = [
    "NOON",
    "FakeClock",
    "InMemoryMetadata",
    "InMemoryObjects",
    "InMemoryTools",
    "LogLine",
    "StageHarness",
    "deploy_target",
    "example_deployment",
]
