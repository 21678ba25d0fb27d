# SPDX-License-Identifier: Apache-2.0
"""One bad application is told so; the others of its repository are deployed as if it were good."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from pipecd_piped.trigger.sync_trouble import GIT_UNREADABLE, LONGEST_REASON
from pipecd_test_support.git_remote import GitRemote
from pipecd_test_support.trigger_bench import WITNESS, Bench, application, application_file
from pipecd_wire.model.application_pb2 import INVALID_CONFIG, UNKNOWN, Application

HEAD = "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n"
FILE = "apps/web/app.pipecd.yaml"

BAD_FILES: dict[str, tuple[str | bytes, str]] = {
    "larger than git gives": (b"#" * (17 * 1024 * 1024), "too large to be read: 17825792 bytes"),
    "larger than is parsed": (b"#" * (5 * 1024 * 1024), "too large to be read: 5242880 bytes"),
    "no UTF-8": (b"\xff\xfe\x00", "not UTF-8"),
    "NUL": (b"\0" * 100, "apps/web/app.pipecd.yaml"),
    "empty": ("", "empty"),
    "bomb": (
        "a0: &a0 [x, x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(60)),
        "more than 100000 values",
    ),
    "deep": ("[" * 100_000, "nested"),
    "alias of itself": ("a: &a [*a]\n", "alias"),
    "object": ("!!python/object/apply:os.system [x]\n", "apps/web/app.pipecd.yaml"),
    "faults": (HEAD + "".join(f"  name: [{n}]\n" for n in range(5000)), "given twice"),
    "long name": (HEAD + f"  name: {'x' * 100_000}\n", "spec.name is too long"),
    "long description": (f"{HEAD}  name: web\n  description: {'x' * 100_000}\n", "too long"),
    "long labels": (f"{HEAD}  name: web\n  labels: {{a: {'x' * 100_000}}}\n", "too long"),
}


@pytest.mark.parametrize("bad", BAD_FILES)
async def test_a_bad_file_is_told_on_its_application_and_no_other_waits_for_it(
    bench: Bench, bad: str
) -> None:
    content, reason = BAD_FILES[bad]
    async with bench.running(application("web"), WITNESS):
        await bench.witnessed(bench.push({FILE: content}))
        await bench.desk.until(lambda: bool(bench.desk.states))
        pushed = bench.push({FILE: application_file("web"), "apps/web/x": "mended"})
        await bench.desk.until(lambda: ("web", pushed) in bench.desk.deployed())
        await bench.witnessed(pushed)

    (first, state), *_ = bench.desk.states
    assert (first, state.status) == ("web", INVALID_CONFIG)
    assert reason in state.reason
    assert len(state.reason) <= LONGEST_REASON + 1
    assert "witness" not in {name for name, _ in bench.desk.states}


def at(path: str = "apps/web", filename: str = "app.pipecd.yaml") -> Application:
    made = application("web", path)
    made.git_path.config_filename = filename
    return made


@pytest.mark.parametrize(
    ("path", "filename"),
    [
        ("apps/web", "app\n.pipecd.yaml"),
        ("apps/web", "app.pipecd.yaml\n"),
        ("apps/web", "app.pipecd.yaml\r"),
        ("apps/web", "app.pipecd.yaml\ninfo HEAD\n"),
        ("apps/web", "app\0.pipecd.yaml"),
        ("apps/web", "\x1b[31mapp.pipecd.yaml"),
        ("apps/web", "x" * 100_000 + ".pipecd.yaml"),
        ("apps/web", "../../../etc/passwd"),
        ("apps/web", "/etc/passwd"),
        ("apps/web", "-h"),
        ("apps/web", ":(glob)*.yaml"),
        ("apps/web", "*"),
        ("apps\nweb", "app.pipecd.yaml"),
        ("/apps/web", "app.pipecd.yaml"),
        ("../remote/apps/web", "app.pipecd.yaml"),
        ("a/" * 10_000, "app.pipecd.yaml"),
        (":(nonsense)", "app.pipecd.yaml"),
        ("--help", "app.pipecd.yaml"),
        ("apps/\N{SNOWMAN}", "app.pipecd.yaml"),
        ("", "."),
        ("apps/web", "."),
        ("apps/web", ".."),
        ("apps/web/app.pipecd.yaml", "app.pipecd.yaml"),
    ],
)
async def test_a_registered_path_of_any_words_harms_nobody_else(
    bench: Bench, path: str, filename: str
) -> None:
    async with bench.running(at(path, filename), WITNESS):
        await bench.witnessed(bench.head)
        await bench.desk.until(lambda: bool(bench.desk.states))
        await bench.witnessed(bench.push({}))

    for name, state in bench.desk.states:
        assert (name, state.status) == ("web", INVALID_CONFIG)
        assert 0 < len(state.reason) < 1000


def link(target: str) -> Callable[[Any], None]:
    def make(remote: GitRemote) -> None:
        file = remote.path / FILE
        file.unlink()
        file.symlink_to(target)

    return make


def folder(remote: GitRemote) -> None:
    (remote.path / FILE).unlink()
    (remote.path / FILE).mkdir()
    (remote.path / FILE / "x").write_text("1")


def submodule(remote: GitRemote) -> None:
    (remote.path / FILE).unlink()
    subprocess.run(
        ["git", "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},{FILE}"],
        cwd=remote.path,
        check=True,
    )
    remote.git("commit", "--quiet", "--message=submodule")


@pytest.mark.parametrize(
    ("replace", "reason"),
    [
        (link("/etc/passwd"), "leads out of the repository"),
        (link("../../../../../etc/passwd"), "leads out of the repository"),
        (link("app.pipecd.yaml"), "leads out of the repository"),
        (link("nowhere"), "has no application file"),
        (link(".."), "has no application file"),
        (folder, "has no application file"),
        (submodule, "has no application file"),
    ],
    ids=["absolute", "up", "loop", "nowhere", "folder link", "folder", "submodule"],
)
async def test_what_stands_where_a_file_should_be_is_told_and_harms_nobody_else(
    bench: Bench, replace: Callable[[Any], None], reason: str
) -> None:
    replace(bench.remote)
    # `push` adds everything, and of a submodule there is nothing to add.
    commit = bench.head if replace is submodule else bench.push({})

    async with bench.running(application("web"), WITNESS):
        await bench.witnessed(commit)
        await bench.desk.until(lambda: bool(bench.desk.states))

    ((name, state),) = bench.desk.states
    assert (name, state.status) == ("web", INVALID_CONFIG)
    assert reason in state.reason


async def test_a_damaged_object_is_told_on_its_application_until_it_can_be_read(
    bench: Bench,
) -> None:
    """Not as a broken file: its author has done nothing wrong, and it is deployed when healed."""
    async with bench.running(WITNESS):
        await bench.witnessed(bench.head)
        spoiled = bench.push({FILE: application_file("web", description="new")})
        await bench.witnessed(spoiled)
        assert bench.repository is not None
        mirror = bench.repository.mirror.folder
    spoil(mirror, bench.remote.git("rev-parse", f"{spoiled}:{FILE}"))

    async with bench.running(application("web"), WITNESS):
        await bench.desk.until(lambda: bool(bench.desk.states))
        await bench.desk.until(lambda: ("web", spoiled) in bench.desk.deployed())
        await bench.desk.until(lambda: len(bench.desk.states) == 2)

    (first, trouble), (second, over) = bench.desk.states
    assert (first, second) == ("web", "web")
    assert (trouble.status, trouble.short_reason) == (UNKNOWN, GIT_UNREADABLE)
    assert "the local copy of the repository is damaged" in trouble.reason
    assert over.short_reason == ""


async def test_a_hundred_bad_applications_are_told_and_the_good_ones_deployed(
    bench: Bench,
) -> None:
    names = [f"n{number}" for number in range(100)]
    good = set(names[::7])
    files = {
        f"apps/{name}/app.pipecd.yaml": application_file(name) if name in good else "nonsense"
        for name in names
    }
    bench.push(files)
    async with bench.running(*(application(name) for name in names), WITNESS):
        await bench.desk.until(lambda: good <= {name for name, _ in bench.desk.deployed()})
        await bench.desk.until(lambda: len(bench.desk.states) == len(names) - len(good))

    assert {name for name, _ in bench.desk.states} == set(names) - good


def spoil(mirror: Any, object_id: str) -> None:
    for pack in (mirror / "objects" / "pack").glob("*.pack"):
        data = pack.read_bytes()
        for file in pack.parent.glob(f"{pack.stem}.*"):
            file.unlink()
        subprocess.run(
            ["git", f"--git-dir={mirror}", "unpack-objects", "-q"], input=data, check=True
        )
    loose = mirror / "objects" / object_id[:2] / object_id[2:]
    loose.chmod(0o644)
    loose.write_bytes(b"garbage")
