# SPDX-License-Identifier: Apache-2.0
"""Installing tools with real scripts."""

import asyncio
import os
import platform
from pathlib import Path

import pytest

from pipecd_model.errors import ConfigError, StateError
from pipecd_piped.plugins.tools import ToolsFolder, render


async def test_a_script_installs_a_tool_with_all_it_is_told(tmp_path: Path) -> None:
    script = """
    cd {{ .TmpDir }}
    echo '#!/bin/sh' > tool
    echo 'echo {{.Name}} {{ .Version }} {{ .Os }} {{ .Arch }}' >> tool
    mv tool {{ .OutPath }}
    """

    path = await ToolsFolder(tmp_path).install("kubectl", "1.2.3", script)

    process = await asyncio.create_subprocess_exec(path, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    assert path == tmp_path / "kubectl-1.2.3"
    assert said.decode() == f"kubectl 1.2.3 linux {arch}\n"
    assert os.listdir(tmp_path) == ["kubectl-1.2.3"]  # noqa: PTH208


async def test_a_tool_that_is_there_is_not_installed_again(tmp_path: Path) -> None:
    (tmp_path / "kubectl-1.2.3").write_text("baked into the image")

    path = await ToolsFolder(tmp_path).install("kubectl", "1.2.3", "exit 1")

    assert path.read_text() == "baked into the image"


async def test_one_script_runs_for_all_who_ask_at_the_same_time(tmp_path: Path) -> None:
    tools, runs = ToolsFolder(tmp_path / "tools"), tmp_path / "runs"
    script = f"echo run >> {runs}; sleep 0.2; echo tool > {{{{ .OutPath }}}}"

    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(tools.install("helm", "3", script)) for _ in range(5)]

    assert {task.result() for task in asked} == {tmp_path / "tools" / "helm-3"}
    assert runs.read_text() == "run\n"


async def test_whoever_waits_takes_over_when_the_first_one_gives_up(tmp_path: Path) -> None:
    """Upstream ties all of them to the first caller."""
    tools, runs = ToolsFolder(tmp_path / "tools"), tmp_path / "runs"
    script = f"echo run >> {runs}; sleep 0.3; echo tool > {{{{ .OutPath }}}}"

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(tools.install("helm", "3", script))
        second = tasks.create_task(tools.install("helm", "3", script))
        async with asyncio.timeout(20):
            while not (runs.exists() and runs.read_text()):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
        first.cancel()

    assert first.cancelled()
    assert second.result().read_text() == "tool\n"
    assert runs.read_text() == "run\nrun\n"


async def test_a_script_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="of helm 3 exited with code 7: no network"):
        await ToolsFolder(tmp_path).install("helm", "3", "echo no network >&2; exit 7")

    assert os.listdir(tmp_path) == []  # noqa: PTH208


async def test_a_script_that_leaves_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="of helm 3 left nothing"):
        await ToolsFolder(tmp_path).install("helm", "3", "true")


async def test_a_script_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 3600 & echo $! > {pid_file}; wait"

    with pytest.raises(StateError, match=r"took longer than 0\.5s"):
        await ToolsFolder(tmp_path / "tools", limit=0.5).install("helm", "3", script)

    async with asyncio.timeout(20):
        while is_alive(int(pid_file.read_text())):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)


async def test_a_tool_that_another_piped_has_installed_meanwhile_is_not_replaced(
    tmp_path: Path,
) -> None:
    script = f"echo ours > {{{{ .OutPath }}}}; echo theirs > {tmp_path / 'helm-3'}"

    path = await ToolsFolder(tmp_path).install("helm", "3", script)

    assert path.read_text() == "theirs\n"
    assert os.listdir(tmp_path) == ["helm-3"]  # noqa: PTH208


async def test_a_folder_in_the_place_of_a_tool_is_said(tmp_path: Path) -> None:
    (tmp_path / "helm-3").mkdir()

    with pytest.raises(StateError, match="is in the way of a tool"):
        await ToolsFolder(tmp_path).install("helm", "3", "echo tool > {{ .OutPath }}")


async def test_only_pipeds_user_can_change_a_tool(tmp_path: Path) -> None:
    script = "umask 0; echo tool > {{ .OutPath }}; chmod 777 {{ .OutPath }}"

    path = await ToolsFolder(tmp_path / "tools").install("helm", "3", script)

    assert path.stat().st_mode & 0o777 == 0o755
    assert path.parent.stat().st_mode & 0o022 == 0


async def test_a_tool_is_a_file_of_its_own_also_where_the_script_made_a_link(
    tmp_path: Path,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("tool")
    elsewhere.chmod(0o666)

    path = await ToolsFolder(tmp_path / "tools").install(
        "helm", "3", f"ln -s {elsewhere} {{{{ .OutPath }}}}"
    )

    assert not path.is_symlink()
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("tool", 0o755)
    assert elsewhere.stat().st_mode & 0o777 == 0o666


async def test_a_tool_or_folder_that_others_could_write_to_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    tool = folder / "helm-3"
    tool.touch()
    for each in (folder, tool):
        each.chmod(0o777)

    await ToolsFolder(folder).install("helm", "3", "exit 1")

    assert [each.stat().st_mode & 0o777 for each in (folder, tool)] == [0o755, 0o755]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("whose", ["tool", "folder"])
async def test_what_belongs_to_another_user_is_not_run(tmp_path: Path, whose: str) -> None:
    tool = tmp_path / "helm-3"
    tool.write_text("theirs")
    os.chown(tool if whose == "tool" else tmp_path, 65534, 65534)

    with pytest.raises(StateError, match="another user can change"):
        await ToolsFolder(tmp_path).install("helm", "3", "exit 1")


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("../evil", "1"),
        ("x", "1/2"),
        (".x", "1"),
        ("-x", "1"),
        ("", "1"),
        ("x", ".."),
        ("x", "1\n"),
        ("x", "\0"),
        ("x" * 101, "1"),
    ],
)
async def test_a_tool_stays_in_its_folder(tmp_path: Path, name: str, version: str) -> None:
    with pytest.raises(ConfigError):
        await ToolsFolder(tmp_path).install(name, version, "exit 0")


@pytest.mark.parametrize(
    "script", ["{{ if .Name }}x{{ end }}", "{{ .Secret }}", "{{.Name | quote}}", "a {{ b"]
)
def test_other_templates_are_refused(script: str) -> None:
    with pytest.raises(ConfigError, match="the install script uses"):
        render(script, {"Name": "x"})


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "\nState:\tZ" not in status.read_text()
