# SPDX-License-Identifier: Apache-2.0
"""The guides, typed: each command into a real terminal, each file written, each output compared.

With PIPECD_WRITE_GUIDES=1 what the terminal shows is put into the guides and their pictures, for
the author to look at.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from pipecd_runtime.ports import pick_port
from pipecd_test_support import guides, terminal_picture
from pipecd_test_support.folder_processes import end_all_in
from pipecd_test_support.postgres import shared_postgres
from pipecd_test_support.typed_terminal import COLUMNS, TypedCommand, TypedTerminal
from pipecd_wire.model.deployment_pb2 import STAGE_RUNNING

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BIN = Path(sys.executable).parent
LIMIT = 100
WRITE = bool(os.environ.get("PIPECD_WRITE_GUIDES"))

BESIDE_THE_QUICKSTART = (
    "guides/script-run.md",
    "guides/quick-sync-and-pipeline-sync.md",
    "guides/approvals.md",
    "guides/after-a-failure.md",
    "guides/audit.md",
    "guides/files.md",
    "guides/monorepo.md",
    "guides/troubleshooting.md",
    "guides/webhooks.md",
)
BY_HAND = (
    "guides/coming-from-upstream.md",
    "guides/many-repositories.md",
    "guides/signing-in.md",
    "guides/tls.md",
    "secrets.md",
)

WITH_POSTGRESQL = ("guides/moving-to-postgresql.md",)

DEPLOYED = {"notify", "website"}
"""The applications of the quickstart that wait for nobody."""

pytestmark = pytest.mark.xdist_group("guides")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a reader: git knows who they are."""
    folder = tmp_path_factory.mktemp("home")
    (folder / ".gitconfig").write_text(
        "[user]\n\tname = Ada\n\temail = ada@example.com\n[init]\n\tdefaultBranch = main\n"
    )
    return folder


@pytest.fixture(scope="module")
def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}
    return {
        **kept,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture(scope="module")
def checkout(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Iterator[Path]:
    """A folder with a running quickstart in it, as `make quickstart` leaves a checkout."""
    folder = tmp_path_factory.mktemp("checkout")
    log = folder / "quickstart.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [BIN / "pipecd", "quickstart", "--data-dir", ".quickstart"],
            cwd=folder,
            env=environment,
            stdout=sink,
            stderr=sink,
        )
    limit = time.monotonic() + LIMIT
    try:
        while not is_deployed(folder / ".quickstart"):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.1)  # between looks at other processes
        yield folder
    finally:
        for _ in range(2):
            process.send_signal(signal.SIGINT)
        process.wait(timeout=LIMIT)
        end_all_in(folder)


def is_deployed(quickstart: Path) -> bool:
    """Returns whether the first deployments are as far as they come without a person."""
    if not (quickstart / "pipectl").exists():
        return False
    done = subprocess.run(
        [quickstart / "pipectl", "deployment", "list", "--output", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    if done.returncode != 0:
        return False
    found = json.loads(done.stdout).get("deployments", [])
    over = {each["application_name"] for each in found if "completed_at" in each}
    waiting = [
        stage
        for each in found
        for stage in each.get("stages", [])
        if stage["name"] == "WAIT_APPROVAL" and stage.get("status") == STAGE_RUNNING
    ]
    return over >= DEPLOYED and bool(waiting)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BESIDE_THE_QUICKSTART)
def test_a_guide_typed_beside_the_quickstart(
    name: str, checkout: Path, environment: dict[str, str]
) -> None:
    type_guide(DOCS / name, checkout, environment)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BY_HAND)
def test_a_guide_that_starts_its_own_programs(
    name: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    ports = {port: f":{pick_port()}" for port in (":8080", ":8443")}
    try:
        type_guide(DOCS / name, tmp_path, environment, instead=ports)
    finally:
        end_all_in(tmp_path)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", WITH_POSTGRESQL)
def test_a_guide_that_needs_a_database(
    name: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    server = shared_postgres()
    database = server.create_database(is_empty=True)
    instead = {
        ":8080": f":{pick_port()}",
        "postgresql://pipecd@db.internal/pipecd": server.url(database),
        "'pipecd' of PostgreSQL at 'db.internal'": f"{database!r} of PostgreSQL at '{server.root}'",
    }
    try:
        type_guide(DOCS / name, tmp_path, environment, instead=instead)
    finally:
        end_all_in(tmp_path)
        server.drop_database(database)


def test_every_guide_is_typed() -> None:
    there = {f"guides/{path.name}" for path in (DOCS / "guides").glob("*.md")}

    assert there | {"secrets.md"} == {*BESIDE_THE_QUICKSTART, *BY_HAND, *WITH_POSTGRESQL}


def type_guide(
    path: Path,
    folder: Path,
    environment: dict[str, str],
    instead: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Does what a guide says from its top to its end, and compares what it shows.

    `instead` has the words that are other ones here: its ports may be taken on this machine.
    """
    text = path.read_text()
    blocks = guides.read_blocks(text)
    changes: list[tuple[int, int, str]] = []
    with TypedTerminal(folder, environment) as terminal:
        for index, block in enumerate(blocks):
            if block.file:
                write_file(terminal, block, instead)
            if block.kind != "sh":
                continue
            typed = terminal.type_block(replace_words(block.text, instead))
            where = f"{path.name}:{block.line}"
            for each in typed:
                wanted = guides.expected_code(each.command)
                assert each.code == wanted, f"{where}: {each.command}\n{each.screen}\n= {each.code}"
            typed = [
                replace(each, screen=translate_back(each.screen, folder, instead)) for each in typed
            ]
            screen = "\n".join(each.screen for each in typed if each.screen)
            following = guides.shown_after(text, blocks, index)
            if following is not None and not guides.is_shown(following.text, screen):
                assert WRITE, f"{where} shows\n{following.text}\nand not\n{screen}"
                plain = terminal_picture.strip_colours(screen).strip("\n")
                changes.append((following.start, following.end, f"{plain}\n"))
            if block.picture:
                compare_picture(path.parent / block.picture, typed, where)
    for start, end, shown in reversed(changes):
        text = text[:start] + shown + text[end:]
    if changes:
        path.write_text(text)


def replace_words(text: str, instead: Mapping[str, str]) -> str:
    for word, other in instead.items():
        text = text.replace(word, other)
    return text


def write_file(
    terminal: TypedTerminal, block: guides.GuideBlock, instead: Mapping[str, str]
) -> None:
    """Writes a file of the guide where the reader is now, as an editor does."""
    [said] = terminal.type_block("pwd")
    file = Path(said.screen.strip()) / block.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(replace_words(block.text, instead))


def compare_picture(picture: Path, typed: list[TypedCommand], where: str) -> None:
    lines: list[str] = []
    for each in typed:
        first, *rest = each.command.splitlines()
        lines += [f"\x1b[32m$\x1b[0m {first}", *(f"  {line}" for line in rest)]
        lines += each.screen.splitlines()
    wide = [line for line in map(terminal_picture.strip_colours, lines) if len(line) > COLUMNS]
    assert not wide, f"{where}: these lines do not fit: {wide}"
    real = [guides.normalise(line) for line in lines]
    if picture.exists():
        shown = [
            guides.normalise(line) for line in terminal_picture.read_lines(picture.read_text())
        ]
        if shown == real:
            return
    assert WRITE, f"{where}: {picture.name} shows something else than\n" + "\n".join(lines)
    picture.write_text(terminal_picture.draw(lines, columns=COLUMNS))


def translate_back(screen: str, folder: Path, instead: Mapping[str, str]) -> str:
    """Returns a screen with a reader's folder and ports in place of the test's."""
    back = {str(folder): "/home/ada/pipecd", **{other: word for word, other in instead.items()}}
    return replace_words(screen, back)
