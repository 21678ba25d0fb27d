# SPDX-License-Identifier: Apache-2.0
"""pipectl every day, against a real control plane: names, tables, logs, what changes something."""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from pipecd_test_support.pipectl_site import (
    COLUMNS,
    PipectlSite,
    ReportedApplication,
    make_stage,
)
from pipecd_test_support.piped_site import BIN, ServerProcess
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import INVALID_CONFIG, ApplicationSyncState

RUNNING = "4a4f54c4-7914-4406-b05c-b83bc63c2702"
QUEUED = "4a4f54c4-d670-424d-8717-45b5782629a4"
FAILED = "7a78f36b-6755-402e-bebd-6a9edc87cb2e"
FOLLOWED = "c0220895-d670-424d-8717-45b5782629a4"
MANY = 12
NAMED = 6


@dataclass(frozen=True, kw_only=True)
class World:
    """A project with something of everything."""

    site: PipectlSite
    hello: ReportedApplication
    twins: tuple[ReportedApplication, ReportedApplication]


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
    broken = site.add_application("broken")
    website = site.add_application("website", flags=["--deploy-target", "files=east"])
    twins = (
        site.add_application("twin", folder="one/twin"),
        site.add_application("twin", folder="two/twin"),
    )
    await deploy_hello(site, hello)
    await broken.become(
        ApplicationSyncState(
            status=INVALID_CONFIG, reason="broken/app.pipecd.yaml:3:8: oh no", timestamp=1
        )
    )
    failed = make_stage("FILES_SYNC", 0, status="FAILURE", status_reason="no space on device")
    await website.deploy(
        id=FAILED,
        status="FAILURE",
        completed_at=2_000_000_000,
        status_reason="FILES_SYNC failed: no space on device",
        stages=[failed],
    )
    await website.set_last(FAILED, status="PENDING")
    stage = make_stage("SCRIPT_RUN", 0, status="RUNNING", id="s")
    await site.add_application("followed").deploy(id=FOLLOWED, age_seconds=90, stages=[stage])
    await site.write_log(FOLLOWED, "s", ["one", "two"])
    for _ in range(MANY):
        site.add_application("many-" + "x" * 60, folder="many")
    return World(site=site, hello=hello, twins=twins)


async def deploy_hello(site: PipectlSite, hello: ReportedApplication) -> None:
    stages = [
        make_stage("SCRIPT_RUN", 0, status="SUCCESS", id="z-first", desc="Build it"),
        make_stage(
            "WAIT_APPROVAL",
            1,
            status="RUNNING",
            id="a-second",
            available_operation=pb.MANUAL_OPERATION_APPROVE,
            authorized_operators=["ada", "bob"],
        ),
        make_stage("SCRIPT_RUN", 2, id="m-third", desc="Publish it"),
        make_stage("SCRIPT_RUN_ROLLBACK", 0, id="r-first", rollback=True),
    ]
    await hello.deploy(id=RUNNING, age_seconds=120, stages=stages)
    await hello.deploy(id=QUEUED, age_seconds=30, status="PENDING", status_reason="a commit")
    await site.write_log(RUNNING, "z-first", ["old one", "old two\nold three"], age_seconds=7200)
    await site.write_log(RUNNING, "a-second", ["waiting", "still \x1b]0;owned\x07waiting"])


def test_an_application_is_found_by_name_id_and_start_of_its_id(world: World) -> None:
    for name in ("hello", world.hello.id, world.hello.id[:8]):
        found = json.loads(world.site.run("application", "get", name).stdout)
        assert found["id"] == world.hello.id


def test_a_deployment_is_found_by_application_id_and_start_of_its_id(world: World) -> None:
    by_name = json.loads(world.site.run("deployment", "get", "hello").stdout)
    by_start = json.loads(world.site.run("deployment", "get", "4a4f54c4-7").stdout)
    by_id = json.loads(world.site.run("deployment", "get", RUNNING).stdout)
    by_flag = json.loads(world.site.run("deployment", "get", "--deployment-id", RUNNING).stdout)

    assert (by_name["id"], by_name["status_name"]) == (QUEUED, "PENDING")
    assert by_start == by_id == by_flag
    assert by_id["status_name"] == "RUNNING"
    assert [each["status_name"] for each in by_id["stages"]][:2] == ["SUCCESS", "RUNNING"]


def test_the_latest_deployment_of_the_project_needs_no_name(world: World) -> None:
    shown = world.site.run("deployment", "get", "--latest", "-o", "name").stdout

    assert shown.strip() in {QUEUED, FAILED}


def test_what_is_ambiguous_is_refused_with_its_candidates(world: World) -> None:
    twins = world.site.run("application", "get", "twin", code=2).stderr
    deployments = world.site.run("deployment", "get", "4a4f", code=2).stderr

    for each in world.twins:
        assert each.id in twins
    assert "one/twin" in twins
    assert RUNNING in deployments
    assert QUEUED in deployments


def test_to_cancel_one_of_several_needs_to_say_which(world: World) -> None:
    done = world.site.run("deployment", "cancel", "hello", "--dry-run", code=2)

    assert "2 deployments" in done.stderr
    assert QUEUED in done.stderr


@pytest.mark.parametrize("name", ["helo", "4a4f54c4-ffff", "--help-me", "\x1b[2J"])
def test_what_does_not_exist_is_said_so(world: World, name: str) -> None:
    done = world.site.run("deployment", "get", "--", name, code=4)

    assert "there is no application or deployment" in done.stderr
    assert "\x1b" not in done.stderr
    if name == "helo":
        assert "did you mean 'hello'?" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("application", "list"),
        ("application", "get", "hello"),
        ("application", "get", "broken"),
        ("deployment", "list"),
        ("deployment", "get", RUNNING),
        ("deployment", "get", "hello"),
        ("piped", "list"),
        ("piped", "get", "agent"),
        ("why", "hello"),
        ("why", "website"),
    ],
)
def test_everything_fits_eighty_columns(world: World, command: tuple[str, ...]) -> None:
    shown = world.site.show(*command)

    assert shown.code == 0, shown.text
    assert shown.lines
    assert [line for line in shown.lines if len(line) > COLUMNS] == []


def test_a_list_of_applications_goes_to_its_end_and_says_what_each_is(world: World) -> None:
    shown = world.site.show("application", "list")

    status = {line.split()[0]: line for line in shown.lines[1:]}
    assert len(shown.lines) == 1 + NAMED + MANY
    assert "INVALID CONFIG" in status["broken"]
    assert "FAILED" in status["website"]
    assert "NOT DEPLOYED" in status["hello"]
    assert any(line.startswith("many-xxx") and "…" in line for line in shown.lines)


def test_a_limit_says_that_there_is_more(world: World) -> None:
    first = world.site.run("application", "list", "--limit", "3")
    cursor = json.loads(first.stdout)["cursor"]
    rest = json.loads(world.site.run("application", "list", "--cursor", cursor).stdout)

    assert "the first 3 applications; there are more" in first.stderr
    assert len(rest["applications"]) == NAMED + MANY - 3
    assert "cursor" not in rest


def test_in_a_pipe_nothing_is_cut_and_wide_shows_whole_ids(world: World) -> None:
    table = world.site.run("deployment", "list", "-o", "table").stdout
    wide = world.site.show("deployment", "list", "-o", "wide").text

    assert "…" not in table
    assert "FILES_SYNC failed: no space on device" in table
    assert "\x1b" not in table
    assert QUEUED in wide
    assert QUEUED not in table
    assert QUEUED[:10] in table  # as long as tells it from the other that begins alike


def test_a_queued_deployment_says_behind_what_it_waits(world: World) -> None:
    listed = world.site.show("deployment", "list", columns=120).text
    page = world.site.show("deployment", "get", "hello").text

    assert re.search(r"PENDING .* waits behind 4a4f54c4", listed)
    assert "waits behind 4a4f54c4, whose stage 2 WAIT_APPROVAL waits for approval" in " ".join(
        page.split()
    )


def test_the_page_of_a_deployment_shows_its_stages(world: World) -> None:
    shown = world.site.show("deployment", "get", RUNNING)

    assert re.search(r"✔ +1 +SCRIPT_RUN +SUCCESS .* Build it", shown.text)
    assert re.search(
        r"▶ +2 +WAIT_APPROVAL +RUNNING +\d+m\w* +waits for approval by ada", shown.text
    )
    assert "ROLLBACK" not in shown.text
    assert "Say it louder" in shown.text
    assert "nobody heard" not in shown.text
    assert "next: pipectl deployment approve hello" in shown.text


@pytest.mark.parametrize("flag", ["auto", "always", "never"])
def test_colours_are_asked_for_or_not(world: World, flag: str) -> None:
    piped = world.site.run("deployment", "list", "-o", "table", "--color", flag).stdout
    shown = world.site.show("deployment", "list", "--color", flag, NO_COLOR="1").raw

    assert ("\x1b[" in piped) == (flag == "always")
    assert ("\x1b[" in shown) == (flag == "always")


def test_formats_say_the_same(world: World) -> None:
    as_json = json.loads(world.site.run("deployment", "get", RUNNING, "-o", "json").stdout)
    as_yaml = yaml.safe_load(world.site.run("deployment", "get", RUNNING, "-o", "yaml").stdout)
    names = world.site.run("application", "list", "-o", "name").stdout.splitlines()

    assert as_json == as_yaml
    assert "hello" in names
    assert {each.id for each in world.twins} <= set(names)


def test_logs_are_text_in_a_pipe_with_times_in_the_order_of_the_stages(world: World) -> None:
    lines = world.site.run("deployment", "logs", "hello").stdout.splitlines()

    assert [line.partition(" | ")[2] for line in lines] == [
        "old one",
        "old two",
        "old three",
        "waiting",
        "still \\x1b]0;owned\\x07waiting",
    ]
    assert all(
        re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d \d \w+ \| ", it) for it in lines
    )
    assert lines[0].endswith(" 1 SCRIPT_RUN | old one")


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        (("--tail", "3"), 3),
        (("--tail", "0"), 0),
        (("--since", "1h"), 2),
        (("--stage", "1"), 3),
        (("--stage", "wait_approval"), 2),
        (("--stage-id", "z-first"), 3),
        (("--stage", "SCRIPT_RUN", "--tail", "1"), 1),
    ],
)
def test_a_part_of_the_logs_can_be_asked_for(
    world: World, flags: tuple[str, ...], count: int
) -> None:
    shown = world.site.run("deployment", "logs", "hello", *flags).stdout

    assert len(shown.splitlines()) == count


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        # What the agent sent as one has one number.
        (("--lines", "2-3", "--stage", "1"), ["2: old two", "2: old three"]),
        (("--lines", "3-"), []),
        (("--lines", "1", "--stage", "1"), ["1: old one"]),
        (("--grep", "T[WH]"), ["2: old two", "2: old three"]),
        (("--grep", "waiting", "--lines", "1-1"), ["1: waiting"]),
        (("--grep", "nothing of it"), []),
    ],
)
def test_lines_are_found_by_number_and_by_what_they_say(
    world: World, flags: tuple[str, ...], found: list[str]
) -> None:
    lines = world.site.run("deployment", "logs", "hello", *flags).stdout.splitlines()

    numbered = [line.partition(": ")[0] + ": " + line.partition(" | ")[2] for line in lines]
    assert numbered == found


@pytest.mark.parametrize(
    "flags", [("--lines", "x"), ("--lines", "5-2"), ("--lines", "0"), ("--grep", "x", "--follow")]
)
def test_a_range_that_is_none_is_refused(world: World, flags: tuple[str, ...]) -> None:
    world.site.run("deployment", "logs", "hello", *flags, code=2)


def test_a_stage_that_is_not_there_is_said_so(world: World) -> None:
    done = world.site.run("deployment", "logs", "hello", "--stage", "9", code=4)

    assert "it has 1 SCRIPT_RUN, 2 WAIT_APPROVAL" in done.stderr


def test_logs_as_json_keep_their_fields_in_the_order_of_the_stages(world: World) -> None:
    logs = json.loads(world.site.run("deployment", "logs", RUNNING, "-o", "json").stdout)

    stages = logs["stage_logs"]
    assert list(stages)[:2] == ["z-first", "a-second"]
    assert stages["z-first"]["blocks"][0]["log"] == "old one"
    assert (stages["z-first"]["name"], stages["z-first"]["number"]) == ("SCRIPT_RUN", "1")
    assert stages["a-second"]["status_name"] == "RUNNING"


def test_targets_can_be_given_later_and_unknown_ones_are_noted(world: World) -> None:
    application = world.site.add_application("moved")
    update = ("application", "update", "moved", "--deploy-target")

    dry = world.site.run(*update, "files=west", "--dry-run").stdout
    before = json.loads(world.site.run("application", "get", "moved").stdout)
    world.site.run(*update, "files=west")
    unknown = world.site.run(*update, "files=north", "--dry-run").stderr
    after = json.loads(world.site.run("application", "get", application.id).stdout)
    world.site.run("application", "delete", "moved")
    gone = world.site.run("application", "get", "moved", code=4).stderr

    assert dry.strip().endswith("files=west; nothing was changed (--dry-run)")
    assert "deploy_targets_by_plugin" not in before
    assert after["deploy_targets_by_plugin"] == {"files": {"deploy_targets": ["west"]}}
    assert "no target files=north, but files=east, files=west" in unknown
    assert "there is no application 'moved'" in gone


async def test_targets_of_the_application_file_are_shown_by_the_deployment_that_had_them(
    world: World,
) -> None:
    """The file's own targets are registered nowhere: what was deployed last knows them."""
    named = world.site.add_application("named", flags=["--deploy-target", "files=west"])
    pages, ids = [], []
    for target in ("west", "east"):
        used = {"files": pb.DeployTargets(deploy_targets=[target])}
        ids.append(await named.deploy(age_seconds=10_000, deploy_targets_by_plugin=used))
        await named.set_last(ids[-1], status="PENDING")
        pages.append(world.site.run("application", "get", "named", "-o", "table").stdout)
    world.site.run("application", "delete", "named")

    assert "files=west" in pages[0]
    assert "last targets" not in pages[0]
    assert re.search(r"^targets +files=west$", pages[1], re.MULTILINE)
    assert f"last targets  files=east (of the deployment {ids[1][:8]})" in pages[1]


def test_a_dry_run_changes_nothing(world: World) -> None:
    for command in (
        ("application", "disable", "broken"),
        ("application", "delete", "broken"),
        ("application", "sync", "broken"),
        ("application", "sync", "broken", "--strategy", "quick"),
        ("application", "enable", "broken"),
        ("deployment", "approve", "hello"),
        ("deployment", "cancel", RUNNING),
        ("piped", "disable", "agent"),
        ("piped", "update", "agent", "--new-name", "other"),
        ("piped", "register", "another"),
        ("piped", "restart-plugin", "agent", "--plugin", "files"),
    ):
        done = world.site.run(*command, "--dry-run")
        assert done.stdout.startswith("would "), done.stdout

    broken = json.loads(world.site.run("application", "get", "broken").stdout)
    pipeds = json.loads(world.site.run("piped", "list").stdout)["pipeds"]
    assert "disabled" not in broken
    assert [each["piped"]["name"] for each in pipeds] == ["agent"]


def test_why_names_the_next_command(world: World) -> None:
    causes = json.loads(world.site.run("why", "hello").stdout)
    text = world.site.show("why", "4a4f54c4-d").text

    sentences = [each["sentence"] for each in causes["findings"]]
    assert "its piped agent is offline" in sentences[0]
    assert any("waits for approval by ada, bob" in each for each in sentences)
    assert {"pipectl deployment approve hello"} < {each["command"] for each in causes["findings"]}
    assert "waits behind 4a4f54c4" in " ".join(text.split())


def test_a_wait_that_times_out_says_what_it_waited_for(world: World) -> None:
    done = world.site.run("deployment", "wait", RUNNING, "--timeout", "1s", code=3)

    first, last = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]
    assert first == "hello RUNNING: stage 2 WAIT_APPROVAL waits for approval"
    assert "still RUNNING after 1s: stage 2 WAIT_APPROVAL waits for approval" in last
    assert "pipectl why 4a4f54c4" in last


def test_statuses_are_taken_in_both_spellings(world: World) -> None:
    for spelling in ("FAILURE", "DEPLOYMENT_FAILURE", "failure,success"):
        listed = world.site.run("deployment", "list", "--status", spelling, "-o", "name").stdout
        assert listed.split() == [FAILED]

    wrong = world.site.run("deployment", "list", "--status", "BROKEN", code=2).stderr
    assert "'BROKEN' is none of PENDING" in wrong


def test_a_wait_in_the_queue_says_what_is_ahead_in_one_line(world: World) -> None:
    shown = world.site.show("deployment", "wait", QUEUED, "--timeout", "4s", columns=100)

    lines = shown.raw.split("\r\x1b[K")
    assert shown.code == 3
    assert any(
        "waits behind 4a4f54c4, whose stage 2 WAIT_APPROVAL waits for approval" in it
        for it in lines
    )
    assert all(len(line.rstrip()) < 100 for line in lines[:-1])
    assert lines[-1].startswith("error: still PENDING after 4s")


def test_logs_that_are_followed_go_on_where_the_stored_ones_end(world: World) -> None:
    follow = ("deployment", "logs", "followed", "--follow", "--tail", "1")
    process = subprocess.Popen(
        [BIN / "pipectl", *follow],
        env={**os.environ, **world.site.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        waits = process.stderr.readline()
        asyncio.run(world.site.write_log(FOLLOWED, "s", ["three"], first_index=3))
        second = process.stdout.readline()
    finally:
        process.kill()
        process.communicate()

    assert first.endswith(" 1 SCRIPT_RUN | two\n")
    assert waits == "followed RUNNING: stage 1 SCRIPT_RUN runs\n"
    assert second.endswith(" 1 SCRIPT_RUN | three\n")


def test_applications_are_searched_by_words_and_state(world: World) -> None:
    shown = world.site.run("search", "WEB", "-o", "table").stdout.splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["website"]
    assert "FAILURE" in shown[1]
    failed = json.loads(world.site.run("search", "--status", "failed").stdout)
    assert [each["application"]["name"] for each in failed["applications"]] == ["website"]
    all_of_them = world.site.run("search", "--limit", "0", "-o", "name").stdout.split()
    assert len(all_of_them) == len(set(all_of_them)) > MANY
    page = world.site.run("search", "many", "--limit", "5", "-o", "table")
    assert len(page.stdout.splitlines()) == 6
    assert "the first 5 applications; there are more" in page.stderr
    nothing = world.site.run("search", "nothing like it", "-o", "table")
    assert nothing.stderr == "no application is like that\n"


def test_the_overview_says_what_is_broken_and_what_to_type(world: World) -> None:
    shown = world.site.run("overview", "-o", "table").stdout

    assert "Broken" in shown
    assert "website" in shown
    assert f"pipectl deployment logs {FAILED[:8]}" in shown
    assert "broken" in json.loads(world.site.run("overview").stdout)
