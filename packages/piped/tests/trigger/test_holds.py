# SPDX-License-Identifier: Apache-2.0
"""What the trigger does with hold and pin, and with commits that a person names."""

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_model.ids import id_of_command
from pipecd_model.strategy import QUICK_IF_OFFERED
from pipecd_piped.controlplane.state import StateChange
from pipecd_test_support.trigger_bench import NOW, WEB, WITNESS, Bench, sync
from pipecd_wire.model.common_pb2 import SyncStrategy
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl, DeploymentRecord, Hold, Pin
from pipecd_wire.pipecd.push import push_pb2 as push

FILE = "apps/web/a"


def pin(commit: str) -> ApplicationControl:
    return ApplicationControl(
        application_id="web", pin=Pin(commit_hash=commit, by="ann", reason="too slow")
    )


def control(bench: Bench, wanted: ApplicationControl) -> None:
    bench.state.merge(StateChange(controls=(wanted,)))


def roll_back(commit: str, *, deployed: str = "d0", id: str = "r1") -> push.Command:
    return push.Command(
        id=id,
        type=push.Command.ROLL_BACK,
        application_id="web",
        commander="ann",
        reason="too slow",
        commit_hash=commit,
        target_deployment_id=deployed,
        created_at=Timestamp(seconds=NOW),
    )


def tell(bench: Bench, command: push.Command) -> None:
    bench.state.merge(StateChange(own_commands=(command,)))


async def test_a_pinned_application_gets_no_deployment_until_its_pin_is_released(
    bench: Bench,
) -> None:
    first = bench.head
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(first)
        control(bench, pin(first))
        newer = bench.push({FILE: "1"})
        await bench.desk.until(lambda: newer[:7] in bench.desk.waiting.get("web", ""))
        await bench.witnessed(newer)
        assert ("web", newer) not in bench.desk.deployed()
        assert "ann rolled back" in bench.desk.waiting["web"]

        newest = bench.push({FILE: "2"})
        await bench.desk.until(lambda: newest[:7] in bench.desk.waiting["web"])
        control(bench, ApplicationControl(application_id="web"))
        await bench.desk.until(lambda: ("web", newest) in bench.desk.deployed())

    assert ("web", newer) not in bench.desk.deployed()
    assert bench.desk.waiting["web"] == ""


async def test_a_pin_stands_after_a_restart_of_piped(bench: Bench) -> None:
    first = bench.head
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(first)
    async with bench.running(WEB, WITNESS):
        control(bench, pin(first))
        newer = bench.push({FILE: "1"})
        await bench.witnessed(newer)
        await bench.desk.until(lambda: newer[:7] in bench.desk.waiting.get("web", ""))

    assert ("web", newer) not in bench.desk.deployed()


async def test_a_plain_sync_of_a_pinned_application_is_refused(bench: Bench) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        control(bench, pin(bench.head))
        bench.tell(sync("web", "c1"))
        await bench.desk.until(lambda: "c1" in bench.desk.refusals)

    assert "release" in bench.desk.refusals["c1"]
    assert bench.desk.deployed().count(("web", bench.head)) == 1


async def test_a_held_commit_is_not_deployed_by_itself(bench: Bench) -> None:
    """Also by a piped that does not know the failed deployment any more."""
    held = Hold(commit_hash=bench.head, deployment_id="d0")
    async with bench.running(WITNESS):
        control(bench, ApplicationControl(application_id="web", hold=held))
        bench.tell(applications=(WEB,))
        await bench.desk.until(lambda: "is held" in bench.desk.waiting.get("web", ""))
        assert "web" not in [name for name, _ in bench.desk.deployed()]

        newer = bench.push({FILE: "1"})
        await bench.desk.until(lambda: ("web", newer) in bench.desk.deployed())


async def test_a_roll_back_is_a_deployment_of_the_commit_under_the_persons_name(
    bench: Bench,
) -> None:
    first = bench.head
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(first)
        newer = bench.push({FILE: "1"})
        await bench.desk.until(lambda: ("web", newer) in bench.desk.deployed())
        bench.state.merge(StateChange(controls=(pin(first),), own_commands=(roll_back(first),)))
        await bench.desk.until(lambda: "r1" in bench.desk.handled_commands)
        await bench.desk.until(lambda: newer[:7] in bench.desk.waiting.get("web", ""))
        record = bench.state.record(id_of_command("r1"))

    made = bench.handed[-1]
    assert made.id == id_of_command("r1") == bench.desk.handled_commands["r1"]
    assert (made.application_id, made.trigger.commit.hash) == ("web", first)
    assert made.trigger.commander == "ann"
    assert made.trigger.strategy_summary == QUICK_IF_OFFERED
    assert made.status_reason == f"ann rolls back to {first[:7]}: too slow"
    assert record.type == DeploymentRecord.ROLL_BACK
    assert bench.desk.deployed().count(("web", newer)) == 1


async def test_a_roll_back_that_comes_again_is_not_made_again(bench: Bench) -> None:
    """As after a piped that died between the deployment and the report on the command."""
    first = bench.head
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(first)
        tell(bench, roll_back(first))
        await bench.desk.until(lambda: "r1" in bench.desk.handled_commands)
    bench.desk.handled_commands.clear()
    async with bench.running(WEB, WITNESS):
        tell(bench, roll_back(first))
        await bench.desk.until(lambda: "r1" in bench.desk.handled_commands)

    assert [each.id for each in bench.desk.created].count(id_of_command("r1")) == 1


async def test_the_pipeline_can_be_asked_for(bench: Bench) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        command = roll_back(bench.head)
        command.strategy = SyncStrategy.PIPELINE
        tell(bench, command)
        await bench.desk.until(lambda: "r1" in bench.desk.handled_commands)

    made = bench.handed[-1]
    assert made.trigger.sync_strategy == SyncStrategy.PIPELINE
    assert made.trigger.strategy_summary == "pipeline sync asked for by ann"


async def test_a_commit_that_was_never_deployed_has_to_be_in_the_branch(bench: Bench) -> None:
    first = bench.head
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(first)
        newer = bench.push({FILE: "1"})
        await bench.witnessed(newer)
        bench.remote.git("branch", "side", first)
        tree = bench.remote.git("rev-parse", f"{newer}^{{tree}}")
        aside = bench.remote.git("commit-tree", tree, "-p", first, "-m", "aside")
        bench.remote.git("update-ref", "refs/heads/side", aside)
        tell(bench, roll_back(aside, deployed=""))
        tell(bench, roll_back(first, deployed="", id="r2"))
        tell(bench, roll_back("f" * 40, id="r3"))
        await bench.desk.until(
            lambda: (
                {"r1", "r3"} <= bench.desk.refusals.keys() and "r2" in bench.desk.handled_commands
            )
        )

    assert "is not in the branch 'main'" in bench.desk.refusals["r1"]
    assert "there is no commit fffffff" in bench.desk.refusals["r3"]


async def test_a_commit_whose_file_cannot_be_used_is_refused(bench: Bench) -> None:
    bench.push({"apps/web/app.pipecd.yaml": "kind: [\n"})
    broken = bench.head
    bench.push({"apps/web/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: Application\n"})
    async with bench.running(WEB, WITNESS):
        tell(bench, roll_back(broken))
        await bench.desk.until(lambda: "r1" in bench.desk.refusals)

    assert "app.pipecd.yaml" in bench.desk.refusals["r1"]


async def test_a_command_on_an_unknown_application_is_refused(bench: Bench) -> None:
    command = roll_back(bench.head)
    command.created_at.seconds = NOW - 1000
    async with bench.running(WITNESS):
        tell(bench, command)
        await bench.desk.until(lambda: "r1" in bench.desk.refusals)

    assert "has no application 'web'" in bench.desk.refusals["r1"]


async def test_a_released_commit_is_deployed_again(bench: Bench) -> None:
    first = bench.head
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(first)
        await bench.desk.until(lambda: ("web", first) in bench.desk.deployed())
        command = roll_back(first)
        command.type = push.Command.RELEASE_HOLD
        tell(bench, command)
        await bench.desk.until(lambda: "r1" in bench.desk.handled_commands)

    made = bench.handed[-1]
    assert made.trigger.commit.hash == first
    assert made.status_reason == f"ann releases {first[:7]}: too slow"
    assert made.trigger.sync_strategy == SyncStrategy.AUTO
    assert made.trigger.strategy_summary == ""
