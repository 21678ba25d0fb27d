# SPDX-License-Identifier: Apache-2.0
"""A violation is kept with all that is needed to understand it."""

import json
from pathlib import Path

import pytest

from chaos.evidence import RecordWatch, Trace, keep
from chaos.inject import Tally
from chaos.moments import Moment
from chaos.observe import Observer
from chaos.promises import Violation
from chaos.schedule import drawn
from chaos.site import Site
from chaos.summary import Broken, summary
from pipecd_wire.model import deployment_pb2 as pb

PLAN = drawn("seed", 7)


def names_in(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


class Round:
    """A round of a site without programs, in which a few things have happened."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root, {})
        self.site.effects.mkdir()
        self.site.piped.log.write_text("an earlier round\n")
        self.trace = Trace.begin(self.site)
        self.observer = Observer(self.site, "commit", PLAN, expected=1)
        self.done = Tally()
        stage = pb.PipelineStage(id="s0", name="SCRIPT_RUN", status=pb.STAGE_CANCELLED)
        self.observer.latest["d1"] = pb.Deployment(
            id="d1", application_name="quick", status=pb.DEPLOYMENT_CANCELLED, stages=[stage]
        )

    async def keep(self, folder: Path) -> None:
        violation = Violation(promise="rollback", sentence="a script lived on")
        broken = [Broken("seed.1", PLAN, violation, folder)]
        await keep(folder, broken, trace=self.trace, observer=self.observer, done=self.done)


@pytest.fixture
def round_of(tmp_path: Path) -> Round:
    site = tmp_path / "site"
    site.mkdir()
    return Round(site)


async def test_all_that_happened_is_on_one_line_of_time(round_of: Round, tmp_path: Path) -> None:
    site = round_of.site
    round_of.done.life.append(Moment(1.0, "kill piped"))
    site.piped.life.append(Moment(1.5, "piped 42 ended with -9"))
    (site.effects / "quick").write_text("begin d1 0 4711 1.25\nbegin other 0 1 1.0\n")

    await round_of.keep(tmp_path / "kept")

    lines = (tmp_path / "kept" / "timeline.txt").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        "kill piped",
        "script: begin 0 of quick d1, pid 4711",
        "piped 42 ended with -9",
    ]


async def test_the_folder_says_how_to_see_it_again(round_of: Round, tmp_path: Path) -> None:
    await round_of.keep(tmp_path / "kept")

    text = (tmp_path / "kept" / "README.md").read_text()
    assert "a script lived on" in text
    assert 'make chaos SEED=seed.1 ARGS="--only 7"' in text
    assert str(PLAN) in text
    schedule = json.loads((tmp_path / "kept" / "schedule.json").read_text())
    assert schedule["number"] == 7
    assert schedule["places"] == list(PLAN.places)


async def test_what_the_programs_wrote_in_the_round_is_kept(
    round_of: Round, tmp_path: Path
) -> None:
    with round_of.site.piped.log.open("a") as log:
        log.write("this round\n")

    await round_of.keep(tmp_path / "kept")

    assert (tmp_path / "kept" / "piped.log").read_text() == "this round\n"


def test_records_are_seen_although_they_go_with_their_deployment(tmp_path: Path) -> None:
    watch = RecordWatch(tmp_path)
    record = tmp_path / "d1" / "s0-0.0"
    record.mkdir(parents=True)
    (record / "started").write_text("42 1000\n")
    (record / "output").write_text("line 1\n")
    watch.look()
    (record / "started").unlink()
    watch.look()

    assert [each.what for each in watch.life] == [
        "record d1/s0-0.0/output: is there",
        "record d1/s0-0.0/started: '42 1000\\n'",
        "record d1/s0-0.0/started is gone",
    ]


async def test_a_control_plane_that_does_not_answer_leaves_what_was_seen_before(
    round_of: Round, tmp_path: Path
) -> None:
    await round_of.keep(tmp_path / "kept")

    kept = tmp_path / "kept" / "deployments"
    assert names_in(kept) == {"not-asked.txt", "quick-d1.json", "quick-d1.log"}
    assert json.loads((kept / "quick-d1.json").read_text())["status"] == "DEPLOYMENT_CANCELLED"
    assert "not to be had" in (kept / "quick-d1.log").read_text()


def test_the_run_names_the_folder_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    violation = Violation(promise="once", sentence="ran twice")
    found = [Broken("seed", PLAN, violation, Path("/kept/here"))]
    assert summary(Tally(), found, deaths=0, least=0, title="seed") == 1
    assert "all that explains it is in /kept/here" in capsys.readouterr().out
