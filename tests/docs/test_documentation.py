# SPDX-License-Identifier: Apache-2.0
"""What the documentation says can be found: files, commands, options, sentences, variables."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import pytest
from pipecd_plugin_scriptrun.environment import script_environment

from pipecd_controlplane.cli import cli as pipecd
from pipecd_pipectl.cli import cli as pipectl
from pipecd_piped.cli import cli as piped
from pipecd_sdk import Commit, Deployment
from pipecd_test_support import guides
from pipecd_test_support.typed_terminal import COLUMNS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BIN = Path(sys.executable).parent
PAGES = sorted([ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("guides/*.md")])
GUIDES = sorted(DOCS.glob("guides/*.md"))
PROGRAMS: Final = {"pipectl": pipectl, "pipecd": pipecd, "piped": piped}
LINK: Final = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
INLINE: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FENCED: Final = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)

TYPED: Final = re.compile(
    r"(?:^|[(!;&] *|until |while |')((?:pipectl|pipecd|piped) (?:[^|;>&)']|>(?=\S))*)"
)

by_name = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
by_guide = pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)


def plain(text: str) -> str:
    """Returns a page without its fenced blocks."""
    return FENCED.sub("", text)


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as code hosts make them."""
    titles = re.findall(r"^#+ (.*)$", plain(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@by_name
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(plain(page.read_text())):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: there is no such heading"


def test_the_map_names_every_page() -> None:
    mapped = {
        (DOCS / link.partition("#")[0]).resolve()
        for link in LINK.findall((DOCS / "README.md").read_text())
    }

    missing = {page for page in PAGES if page.parent != ROOT and page.name != "README.md"} - mapped

    assert not missing


@by_guide
def test_the_files_of_a_guide_have_no_faults(page: Path, tmp_path: Path) -> None:
    """Each as it stands, and each version of one that changes on the way."""
    files = []
    for number, block in enumerate(guides.read_blocks(page.read_text())):
        if block.kind == "yaml":
            assert block.file, f"line {block.line}: which file is it?"
            file = tmp_path / str(number) / block.file
            file.parent.mkdir(parents=True)
            file.write_text(block.text)
            files.append(file)
    if not files:
        return

    done = subprocess.run(
        [BIN / "pipectl", "lint", *files],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@by_guide
def test_what_is_typed_fits_the_terminal(page: Path) -> None:
    for block in guides.read_blocks(page.read_text()):
        if block.kind == "sh":
            assert [line for line in block.text.splitlines() if len(line) > COLUMNS] == []


def commands_of(page: Path) -> Iterator[str]:
    """Yields the command lines of ours that a page names, in blocks and in sentences."""
    text = page.read_text()
    for block in guides.read_blocks(text):
        if block.kind == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                yield from TYPED.findall(line.partition(" #")[0])
    for code in INLINE.findall(plain(text)):
        if code.split(" ")[0] in PROGRAMS:
            yield code


@by_name
def test_every_command_exists_with_its_options(page: Path) -> None:
    for line in commands_of(page):
        words = line.replace('"', "").replace("[", "").split()
        command: click.Command = PROGRAMS[words[0]]
        context = click.Context(command)
        rest = words[1:]
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            inner = command.get_command(context, rest[0].partition("|")[0])
            assert inner is not None, f"{line}: there is no {rest[0]!r}"
            command, rest = inner, rest[1:]
        known = {"-h", "--help", "--version"} | {
            name for each in command.params for name in (*each.opts, *each.secondary_opts)
        }
        for word in rest:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in known, f"{line}: there is no {word}"


def test_the_variables_of_a_script_are_those_in_the_table() -> None:
    deployment = Deployment(
        id="d",
        application_id="a",
        application_name="shop",
        project_id="p",
        piped_id="p",
        commit=Commit(hash="c", message="m", author="Ada", branch="main"),
        commander="ada",
        created_at=NOON,
        labels={"cost-center": "42"},
        repository_url="r",
        summary="s",
    )
    real = script_environment({}, deployment, {}, rollback=True, script_id="x")
    rows = re.findall(
        r"^\| `(SR_[^`]+)` \|.*\| (?:`(\w+)`)?[^|]*\|$",
        (DOCS / "guides/script-run.md").read_text(),
        re.MULTILINE,
    )

    wanted = {name.replace("<KEY>", "COST_CENTER") for name, _ in rows}

    assert wanted == {name for name in real if name.startswith("SR_")}
    for name, key in rows:
        assert not key or f'"{key}":' in real["SR_CONTEXT_RAW"], f"{name} is not {key} there"


NOON: Final = datetime(2026, 11, 16, 12, tzinfo=UTC)


def literals() -> Iterator[str]:
    """Yields every text of the source, with `…` where a value is put into it."""
    for folder in ("packages", "plugins"):
        for file in (ROOT / folder).glob("*/src/**/*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(
                        str(part.value) if isinstance(part, ast.Constant) else guides.ANYTHING
                        for part in node.values
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield re.sub(r"%[sdr]|\{\w*(?:![rs])?\}", guides.ANYTHING, node.value)


def sentences() -> list[str]:
    """Returns the sentences that the guide explains: the first column of its tables."""
    text = (DOCS / "guides/troubleshooting.md").read_text()
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_the_code_can_say_every_sentence_that_is_explained() -> None:
    said = list(literals())
    for sentence in sentences():
        parts = [re.escape(part) for part in sentence.split(guides.ANYTHING)]
        pattern = re.compile(".*".join(parts), re.DOTALL)
        assert any(pattern.search(text) for text in said), f"nobody says {sentence!r}"


def test_many_sentences_are_explained() -> None:
    assert len(sentences()) >= 40
    assert len(sentences()) == len(set(sentences()))


def test_the_pictures_are_as_they_would_be_drawn() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "gen_pictures.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr


def list_places() -> set[str]:
    """Returns the files and folders of the source, each with a slash before it."""
    homes = [ROOT / name for name in ("packages", "plugins", "console/src", "tools")]
    found = [path for home in homes for path in (home, home.parent, *home.rglob("*"))]
    return {f"/{path.relative_to(ROOT)}" for path in found}


def test_every_place_of_the_map_is_there() -> None:
    """Whoever follows a commit, or an approval, through the tree opens these."""
    named = INLINE.findall((DOCS / "architecture.md").read_text())
    paths = {name.rstrip("/") for name in named if re.fullmatch(r"[\w./]+(\.py|\.tsx|/\w*)", name)}
    places = list_places()

    def is_there(path: str) -> bool:
        return any(place.endswith(f"/{path}") for place in places)

    assert len(paths) > 50
    is_built = {"pipecd_controlplane/console_dist"}
    assert sorted(path for path in paths - is_built if not is_there(path)) == []
