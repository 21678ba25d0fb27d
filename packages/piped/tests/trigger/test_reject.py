# SPDX-License-Identifier: Apache-2.0
"""`queue.mode: reject`: no deployment while one is open, visibly, and then the newest commit."""

from pathlib import Path

import pytest

from pipecd_test_support.git_remote import Remotes
from pipecd_test_support.trigger_bench import WEB, WITNESS, Bench, application_file, sync


@pytest.fixture
def rejecting(git_remote: Remotes, tmp_path: Path) -> Bench:
    remote = git_remote()
    remote.commit(
        {
            "apps/web/app.pipecd.yaml": application_file("web", queue="{mode: reject}"),
            "apps/witness/app.pipecd.yaml": application_file("witness"),
        },
        "first",
    )
    return Bench(remote, tmp_path / "data")


def list_web(bench: Bench) -> list[str]:
    return [commit for name, commit in bench.desk.deployed() if name == "web"]


async def test_a_newer_commit_waits_for_the_open_deployment_and_says_so(rejecting: Bench) -> None:
    bench = rejecting
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        first = list_web(bench)
        bench.open["web"] = ["d1"]
        await bench.witnessed(bench.push({"apps/web/x": "1"}))
        newest = bench.push({"apps/web/x": "2"})
        await bench.witnessed(newest)
        assert list_web(bench) == first
        assert bench.desk.waiting["web"] == (
            f"the commit {newest[:7]} is not deployed now: the deployment d1 is not completed, and"
            " the application file says queue.mode: reject"
        )
        bench.close("web")
        await bench.desk.until(lambda: list_web(bench) == [*first, newest])

    assert bench.desk.waiting["web"] == ""


async def test_the_end_of_another_deployment_changes_nothing(rejecting: Bench) -> None:
    bench = rejecting
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        bench.open["web"], bench.open["witness"] = ["d1"], ["w1"]
        await bench.witnessed(bench.push({"apps/web/x": "1"}))
        bench.close("witness")
        await bench.witnessed(bench.push({"README": "x"}))

        assert len(list_web(bench)) == 1


async def test_a_restarted_piped_decides_the_same(rejecting: Bench) -> None:
    bench = rejecting
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
    bench.open["web"] = ["d1"]
    newest = bench.push({"apps/web/x": "1"})
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(newest)
        assert newest not in list_web(bench)
        bench.close("web")
        await bench.desk.until(lambda: newest in list_web(bench))


async def test_a_person_is_told_what_to_do(rejecting: Bench) -> None:
    bench = rejecting
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(list_web(bench)) == 1)
        bench.open["web"] = ["d1"]
        bench.tell(sync("web", id="asked"))
        await bench.desk.until(lambda: "asked" in bench.desk.refusals)

    assert bench.desk.refusals["asked"].endswith("(cancel that one, or ask again after it)")


async def test_other_modes_queue(bench: Bench) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        bench.open["web"] = ["d1"]
        newest = bench.push({"apps/web/x": "1"})
        await bench.witnessed(newest)

        assert newest in list_web(bench)
