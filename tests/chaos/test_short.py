# SPDX-License-Identifier: Apache-2.0
"""A short run of the kit, and the proof that it bites.

The same seed every time. Nothing here waits for a fixed time: what has to happen is waited for, up
to limits that a machine under load keeps.
"""

from pathlib import Path

import pytest

from chaos.back import measure
from chaos.inject import Tally
from chaos.places import RACE
from chaos.run import World, run
from chaos.schedule import Round
from chaos.site import running_site

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("chaos")]


async def test_two_dozen_deaths_break_no_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await run(tmp_path, deaths=24, seed="short")
    assert code == 0, capsys.readouterr().out


async def test_a_dozen_deaths_around_two_control_planes_break_no_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await run(tmp_path, deaths=12, seed="short", replicas=2)
    assert code == 0, capsys.readouterr().out


async def test_a_script_runs_once_with_its_whole_log_whoever_is_killed_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """How soon the site is back is printed, not judged: that is the machine's matter, too."""
    code = await measure(tmp_path, times=1, seed="short")
    assert code == 0, capsys.readouterr().out


TWO_SHIMS = Round(number=1, places=(RACE,))
BITTEN = ("steady", "quick")
"""Applications that are enough for that."""
LOST_POWER = Round(number=1, places=("shim.output",), power=True)


async def broken(folder: Path, plan: Round, without: str) -> tuple[Tally, set[str]]:
    """What a round has done, and which promises it has broken."""
    variables = {"PIPECD_CHAOS_WITHOUT": without} if without else {}
    async with running_site(folder, variables, BITTEN) as site:
        world = World(site, "bites", Tally())
        await world.round(plan)
    return world.total, {each.violation.promise for each in world.broken}


@pytest.mark.parametrize(
    ("plan", "promise"), [(TWO_SHIMS, "exclusive"), (LOST_POWER, "sync")], ids=["race", "power"]
)
async def test_the_kit_notices_when_a_script_is_not_protected(
    tmp_path: Path, plan: Round, promise: str
) -> None:
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()

    done, kept = await broken(tmp_path / "with", plan, "")
    assert not (tmp_path / "violations").exists()
    _, missed = await broken(tmp_path / "without", plan, promise)

    assert done.deaths.total() == 1, done
    assert kept == set()
    assert "once" in missed
    explained = tmp_path / "violations" / "bites-round-1"
    assert (
        f"reached {'plugin.shim-started' if plan == TWO_SHIMS else 'shim.output'}"
        in (explained / "timeline.txt").read_text()
    )
    assert list(explained.glob("deployments/quick-*.json"))
    assert "line 1" in next(explained.glob("deployments/steady-*.log")).read_text()
    assert "deployment.planned" in (explained / "piped.log").read_text()
