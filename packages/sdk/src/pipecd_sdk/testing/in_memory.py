# SPDX-License-Identifier: Apache-2.0
"""What piped stores for a stage, in memory: a test fills it before a run and reads it after."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from pipecd_sdk.metadata import Metadata
from pipecd_sdk.shared import SharedObjects
from pipecd_sdk.tools import Tool, ToolError, Tools


class InMemoryMetadata(Metadata):
    """Metadata in a dict. A time may be assigned as it is: it is stored in Unix seconds.

    Example:
        harness.metadata["startTime"] = NOON
        assert await harness.metadata.get("startTime") == "1704196800"
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def __setitem__(self, key: str, value: str | datetime) -> None:
        if isinstance(value, datetime):
            value = str(int(value.timestamp()))
        self.values[key] = value

    def __getitem__(self, key: str) -> str:
        return self.values[key]

    def __contains__(self, key: object) -> bool:
        return key in self.values

    async def get(self, key: str) -> str | None:
        return self.values.get(key)

    async def put(self, key: str, value: str) -> None:
        self.values[key] = value

    async def put_many(self, values: Mapping[str, str]) -> None:
        self.values.update(values)


class InMemoryObjects(SharedObjects):
    """Shared objects in a dict.

    Example:
        harness.shared.values["last-result"] = b"42"
    """

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    async def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    async def put(self, key: str, value: bytes) -> None:
        self.values[key] = value


class InMemoryTools(Tools):
    """Programs that a test says are installed.

    Example:
        harness.tools.paths["kubectl-1.33.0"] = path
    """

    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[str, Path] = {}
        self.asked: list[Tool] = []

    async def get(self, tool: Tool) -> Path:
        self.asked.append(tool)
        try:
            return self.paths[f"{tool.name}-{tool.version}"]
        except KeyError:
            raise ToolError(f"the test has no tool {tool.name}-{tool.version}") from None
