# SPDX-License-Identifier: Apache-2.0
"""TAB in real shells, against a real control plane: names are completed, and nothing is obeyed."""

import asyncio
import dataclasses
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipecd_test_support.pipectl_site import PipectlSite, Shown, make_stage, run_in_terminal
from pipecd_test_support.piped_site import BIN, LIMIT, ServerProcess
from pipecd_wire.model.common_pb2 import ApplicationInfo
from pipecd_wire.pipedservice import service_pb2 as agent_pb

DEPLOYED = "4a4f54c4-7914-4406-b05c-b83bc63c2702"
HOSTILE = ["$(touch obeyed)", "`touch obeyed`; touch obeyed", "--help", "*", "a\nb\x1b]0;c\x07"]
CLEANED = [*HOSTILE[:-1], r"a b\x1b]0;c\x07"]
SHORT_ID = 8

ASK_BASH = """
source <(pipectl completion bash)
COMP_LINE=$1
COMP_POINT=${#1}
_pipectl_completion pipectl
for each in "${COMPREPLY[@]}"; do printf '%s\\n' "$each"; done
"""
ASK_FISH = "pipectl completion fish | source; complete -C $argv[1]"
ZSH = ["zsh", "-f", "-i"]
START_ZSH = "autoload -U compinit; compinit -D -u; source <(pipectl completion zsh)\n"
BASH = ["bash", "--noprofile", "--norc", "-i"]
START_BASH = "source <(pipectl completion bash)\n"


@dataclass(frozen=True, kw_only=True)
class Shells:
    """Shells in a folder of their own, with pipectl in their path."""

    folder: Path
    environment: Mapping[str, str]

    def complete_in_bash(self, line: str) -> list[str]:
        """Returns what bash would offer after this line."""
        return self._run(["bash", "--norc", "-c", ASK_BASH, "bash", line])

    def complete_in_fish(self, line: str) -> list[str]:
        """Returns what fish would offer after this line, with what it shows beside it."""
        return self._run(["fish", "--no-config", "-c", ASK_FISH, line])

    def type_into(self, shell: Sequence[str], keys: str) -> Shown:
        """Types into an interactive shell, which is then left."""
        into = ["env", "-C", str(self.folder), "setsid", "--ctty", "--wait", *shell]
        return run_in_terminal(into, env=dict(self.environment), stdin=f"{keys}exit\n")

    def list_files(self) -> list[str]:
        return sorted(each.name for each in self.folder.iterdir())

    def _run(self, command: Sequence[str]) -> list[str]:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=True,
            cwd=self.folder,
            env={**os.environ, **self.environment},
        )
        assert done.stderr == ""
        return done.stdout.splitlines()


@dataclass(frozen=True, kw_only=True)
class World:
    """A project with honest and hostile names."""

    site: PipectlSite
    hostile_ids: Sequence[str]
    twin_ids: Sequence[str]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    server = ServerProcess(tmp_path_factory.mktemp("server"))
    server.start()
    try:
        yield asyncio.run(build(PipectlSite(server=server)))
    finally:
        server.stop()


async def build(site: PipectlSite) -> World:
    await site.register_piped("agent")
    hello = site.add_application("hello")
    await hello.deploy(
        id=DEPLOYED,
        stages=[make_stage("SCRIPT_RUN", 0), make_stage("WAIT", 1), make_stage("SCRIPT_RUN", 2)],
    )
    site.add_application("team:shop@eu")
    twins = [site.add_application("twin", folder=each).id for each in ("one", "two")]
    hostile = [site.add_application(f"hostile-{number}") for number in range(len(HOSTILE))]
    infos = [
        ApplicationInfo(
            id=each.id,
            name=name,
            repo_id="example",
            path=each.name,
            config_filename="app.pipecd.yaml",
            piped_id=site.piped_id,
        )
        for each, name in zip(hostile, HOSTILE, strict=True)
    ]
    await site.report(
        "UpdateApplicationConfigurations",
        agent_pb.UpdateApplicationConfigurationsRequest(applications=infos),
    )
    return World(site=site, hostile_ids=[each.id for each in hostile], twin_ids=twins)


@pytest.fixture
def shells(world: World, tmp_path: Path) -> Shells:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "a-file").touch()
    return Shells(
        folder=folder,
        environment={
            **world.site.environment,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "PIPECTL_COMPLETION_SECONDS": "60",
        },
    )


def offered_applications(world: World) -> set[str]:
    ids = [each[:SHORT_ID] for each in world.hostile_ids]
    return {"hello", "team:shop@eu", *world.twin_ids, *ids}


@pytest.mark.parametrize(
    "line",
    [
        "pipectl application get ",
        "pipectl why ",
        "pipectl deployment logs ",
        "pipectl deployment list ",
    ],
)
def test_applications_are_offered_by_name_and_by_id_where_the_name_cannot_be_typed(
    world: World, shells: Shells, line: str
) -> None:
    assert set(shells.complete_in_bash(line)) == offered_applications(world)
    assert shells.list_files() == ["a-file"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("pipectl application get he", ["hello"]),
        ("pipectl application get nothing", []),
        ("pipectl deployment get 4a4f54", [DEPLOYED]),
        ("pipectl deployment get --deployment-id ", [DEPLOYED]),
        ("pipectl deployment get --la", ["--latest"]),
        ("pipectl deployment logs hello --stage ", ["SCRIPT_RUN", "WAIT"]),
        ("pipectl deployment logs hello --stage 2", ["2"]),
        ("pipectl deployment logs --latest --stage S", ["SCRIPT_RUN"]),
        ("pipectl piped get ", ["agent"]),
        ("pipectl piped restart-plugin agent --plugin ", ["files"]),
        ("pipectl application add new --piped a", ["agent"]),
    ],
)
def test_bash_offers_what_can_stand_there(
    shells: Shells, line: str, offered: list[str], world: World
) -> None:
    assert shells.complete_in_bash(line) == offered


def test_bash_gets_the_rest_of_a_name_behind_a_colon(shells: Shells) -> None:
    """bash replaces only what follows the last `:` or `@`."""
    assert shells.complete_in_bash("pipectl application get team:") == ["shop@eu"]
    assert shells.complete_in_bash("pipectl application get team:shop@") == ["eu"]
    assert shells.complete_in_bash("pipectl deployment list --app-name=team:sh") == ["shop@eu"]


def test_api_keys_and_contexts_are_offered_to_who_is_signed_in(
    world: World, shells: Shells, tmp_path: Path
) -> None:
    folder = world.site.server.folder / "data"
    config = str(tmp_path / "config")
    here = {"PIPECTL_API_KEY": "", "XDG_CONFIG_HOME": config}
    login = [str(BIN / "pipectl"), "login", f"http://{world.site.server.address}"]
    subprocess.run(
        [*login, "--username", "admin", "--password-stdin", "--context", "work"],
        input=(folder / "admin.password").read_text(),
        env={**os.environ, **here},
        text=True,
        check=True,
        timeout=LIMIT,
    )
    world.site.run("api-key", "create", "robot", PIPECTL_API_KEY="", XDG_CONFIG_HOME=config)
    signed_in = dataclasses.replace(shells, environment={**shells.environment, **here})

    assert "robot" in signed_in.complete_in_bash("pipectl api-key disable r")
    assert signed_in.complete_in_bash("pipectl context use ") == ["work"]
    assert signed_in.complete_in_bash("pipectl application list --context=w") == ["work"]


@pytest.mark.parametrize(
    "line",
    [
        "pipectl application get ",
        "pipectl deployment logs hello --stage ",
        "pipectl api-key disable ",
        "pipectl application get --no-such-option ",
        "pipectl 'unfinished",
    ],
)
@pytest.mark.parametrize("fault", ["silent", "closed", "nobody signed in", "wrong key"])
def test_what_goes_wrong_offers_nothing_and_says_nothing(
    shells: Shells, line: str, fault: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        if fault == "closed":
            silent.close()
        changed = {
            "silent": {"PIPECTL_ADDRESS": address, "PIPECTL_COMPLETION_SECONDS": "0.1"},
            "closed": {"PIPECTL_ADDRESS": address, "PIPECTL_COMPLETION_SECONDS": "0.1"},
            "nobody signed in": {"PIPECTL_API_KEY": ""},
            "wrong key": {"PIPECTL_API_KEY": "no.key"},
        }[fault]
        faulty = dataclasses.replace(shells, environment={**shells.environment, **changed})

        assert faulty.complete_in_bash(line) == []


def test_tab_in_an_interactive_bash_completes_the_name(shells: Shells) -> None:
    shown = shells.type_into(BASH, f"{START_BASH}pipectl application get hel\t -o name\n")

    assert "hello" in shown.lines


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_tab_in_an_interactive_zsh_completes_the_name(shells: Shells) -> None:
    shown = shells.type_into(ZSH, f"{START_ZSH}pipectl application get hel\t -o name\n")

    assert "hello" in shown.lines
    assert shells.list_files() == ["a-file"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_offers_names_with_what_they_are(world: World, shells: Shells) -> None:
    offered = dict(
        line.split("\t", 1) for line in shells.complete_in_fish("pipectl application get ")
    )

    assert set(offered) == offered_applications(world)
    assert offered["hello"] == "example:hello"
    assert [offered[each[:SHORT_ID]] for each in world.hostile_ids] == CLEANED
    assert shells.list_files() == ["a-file"]
