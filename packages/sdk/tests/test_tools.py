# SPDX-License-Identifier: Apache-2.0
"""Tools: got once, checked before every use, never handed out when they are not what they claim."""

import doctest
import hashlib
import shutil
from pathlib import Path

import pytest

from pipecd_sdk import Tool, ToolError
from pipecd_sdk.kit import shell, tools
from pipecd_sdk.testing import InMemoryTools
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.tools import this_platform
from pipecd_wire.pluginservice import service_pb2, service_pb2_grpc
from pipecd_wire.rpc import CallError, call, connect

PROGRAM = b"#!/bin/sh\necho hello\n"
SUM = hashlib.sha256(PROGRAM).hexdigest()


def there(tmp_path: Path, content: bytes = PROGRAM) -> InMemoryTools:
    kept = InMemoryTools()
    kept.paths["hello-1"] = tmp_path / "hello-1"
    kept.paths["hello-1"].write_bytes(content)
    return kept


def test_the_examples_are_true() -> None:
    assert doctest.testmod(tools).failed == 0


async def test_a_tool_with_the_right_checksum_is_handed_out(tmp_path: Path) -> None:
    tool = Tool(name="hello", version="1", script="x", sha256={this_platform(): SUM.upper()})

    assert await there(tmp_path).install(tool) == tmp_path / "hello-1"


async def test_a_tool_with_another_checksum_is_never_handed_out(tmp_path: Path) -> None:
    tool = Tool(name="hello", version="1", script="x", sha256={this_platform(): SUM})

    with pytest.raises(ToolError, match="is not the file it should be: sha256"):
        await there(tmp_path, b"evil").install(tool)


async def test_a_tool_that_is_changed_after_its_first_use_is_noticed(tmp_path: Path) -> None:
    tool = Tool(name="hello", version="1", script="x", sha256={this_platform(): SUM})
    kept = there(tmp_path)
    await kept.install(tool)

    (tmp_path / "hello-1").write_bytes(PROGRAM.replace(b"hello", b"harm!"))

    with pytest.raises(ToolError, match="is not the file it should be"):
        await kept.install(tool)


async def test_a_platform_without_a_checksum_is_refused(tmp_path: Path) -> None:
    tool = Tool(name="hello", version="1", script="x", sha256={"plan9/mips": SUM})

    with pytest.raises(ToolError, match="has no checksum for"):
        await there(tmp_path).install(tool)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(("sum_", "works"), [(SUM, True), ("0" * 64, False)])
async def test_a_download_is_checked_before_it_becomes_a_tool(
    tmp_path: Path, sum_: str, works: bool
) -> None:
    """The script of the registry itself, run as piped runs it; the address is a file's."""
    (tmp_path / "served").write_bytes(PROGRAM)
    tool = tools.define_tool(
        "hello", "1", f"file://{tmp_path}/served", sha256={this_platform(): sum_}
    )
    (tmp_path / "tools").mkdir()
    request = service_pb2.InstallToolRequest(
        name=tool.name, version=tool.version, install_script=tool.script
    )
    async with FakePiped() as piped:
        piped.tools = tmp_path / "tools"
        async with connect(piped.address) as channel:
            stub = service_pb2_grpc.PluginServiceStub(channel)
            if works:
                answer = await call(stub.InstallTool, request)
                assert Path(answer.installed_path).read_bytes() == PROGRAM  # noqa: ASYNC240
            else:
                with pytest.raises(CallError, match="FAILED"):
                    await call(stub.InstallTool, request)
                assert list((tmp_path / "tools").iterdir()) == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (f"{SUM}\n", ""),
        (f"{'0' * 64}  other\n{SUM}  hello\n", ""),
        (f"{SUM} *hello\n", ""),
        (f"{'0' * 64}  hello\n", "FAILED"),
        (f"{SUM}  other\n", "its publisher has no checksum for hello"),
    ],
)
async def test_a_download_is_checked_by_the_list_of_its_publisher(
    tmp_path: Path, listed: str, said: str
) -> None:
    (tmp_path / "hello").write_bytes(PROGRAM)
    (tmp_path / "published").write_text(listed)
    tool = tools.define_tool(
        "hello", "1", f"file://{tmp_path}/hello", sums=f"file://{tmp_path}/published"
    )
    script = tool.script.replace("{{ .TmpDir }}", str(tmp_path)).replace(
        "{{ .OutPath }}", str(tmp_path / "made")
    )
    done = await shell.run(script, check=False)
    assert said in done.errors
    assert (tmp_path / "made").exists() is not bool(said)


def test_known_tools_are_checked_by_their_publishers_without_a_sum_of_ours() -> None:
    assert "kubectl.sha256" in tools.find_tool("kubectl", "1.33.0").script
    assert "checksums.txt" in tools.find_tool("kustomize").script
    assert "SHA256SUMS" in tools.find_tool("terraform").script
    assert 'sha256sum"' not in tools.find_tool("helm", sha256={"linux/amd64": "ab"}).script


@pytest.mark.parametrize("name", tools.DEFAULTS)
def test_every_known_tool_has_its_source_and_upstreams_version(name: str) -> None:
    tool = tools.find_tool(name)

    assert tool.version == tools.DEFAULTS[name]
    assert "{version}" not in tool.script
    assert "{{ .OutPath }}" in tool.script


def test_an_unknown_tool_is_told_with_the_known_ones() -> None:
    with pytest.raises(ToolError, match="there is no known tool 'kubectx'"):
        tools.find_tool("kubectx")


@pytest.mark.parametrize("word", ["", "-x", "1; touch pwned", "$(touch pwned)", "../1", "1\n2"])
async def test_a_version_that_is_more_than_a_word_is_refused(tmp_path: Path, word: str) -> None:
    """It comes from a repository, and an agent puts it into the text of a shell script."""
    for tool in (
        Tool(name="hello", version=word, script="x"),
        Tool(name=word, version="1", script="x"),
    ):
        with pytest.raises(ToolError, match="a tool cannot have the"):
            await there(tmp_path).install(tool)


@pytest.mark.parametrize(
    ("url", "member", "sums"),
    [
        ('https://x/"; touch pwned; "', "", {}),
        ("https://x/$(touch pwned).zip", "a", {}),
        ("https://x/`touch pwned`", "", {}),
        ("--config=/etc/passwd", "", {}),
        ("https://x/a.zip", "a\nb", {}),
        ("https://x/a.zip", "-x", {}),
        ("https://x/a", "", {"linux/amd64": "0; touch pwned"}),
        ("https://x/a", "", {"*) touch pwned;; x": "00"}),
    ],
)
def test_a_download_that_is_more_than_words_is_refused(
    url: str, member: str, sums: dict[str, str]
) -> None:
    with pytest.raises(ToolError):
        tools.define_tool("hello", "1", url, member=member, sha256=sums)
