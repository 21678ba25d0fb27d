# SPDX-License-Identifier: Apache-2.0
"""Chains: an application that others follow, and one that follows."""

from pipecd_test_support.trigger_bench import (
    WEB,
    WITNESS,
    Bench,
    Matcher,
    application_file,
    chain_sync,
    sync,
)

CHAIN = "{chain: {applications: [{name: second}, {kind: ECS, labels: {env: dev}}]}}"
FOLLOWS = "{onCommit: {disabled: true}, onChain: {disabled: false}}"


def become(bench: Bench, **spec: str) -> None:
    bench.push({"apps/web/app.pipecd.yaml": application_file("web", **spec)})


async def test_an_application_that_others_follow_begins_a_chain(bench: Bench) -> None:
    become(bench, postSync=CHAIN)

    async with bench.running(WEB):
        await bench.desk.until(lambda: bool(bench.desk.chains))
        bench.tell(sync("web"))
        await bench.desk.until(lambda: len(bench.desk.chains) == 2)

    matchers = [Matcher(name="second"), Matcher(kind="ECS", labels={"env": "dev"})]
    assert bench.desk.chains == {each.id: matchers for each in bench.desk.created}
    assert bench.handed == bench.desk.created


async def test_one_that_follows_is_deployed_in_its_block(bench: Bench) -> None:
    become(bench, trigger=FOLLOWS)

    async with bench.running(WEB):
        bench.tell(chain_sync("web", chain="c", block=2))
        await bench.desk.until(lambda: bool(bench.desk.created))

    (deployment,) = bench.desk.created
    assert (deployment.deployment_chain_id, deployment.deployment_chain_block_index) == ("c", 2)
    assert deployment.trigger.commander == "", "a chain is no person"
    assert deployment.status_reason == "a chain has reached the application"
    assert bench.desk.handled_commands == {"c1": deployment.id}


async def test_one_that_follows_no_chains_says_how_to_change_that(bench: Bench) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        bench.tell(chain_sync("web"))
        await bench.desk.until(lambda: bool(bench.desk.refusals))

    assert "follows no chains; `trigger.onChain.disabled: false`" in bench.desk.refusals["c1"]
    assert [each.deployment_chain_id for each in bench.desk.created] == ["", ""]


async def test_one_that_follows_stays_in_its_chain_and_begins_no_other(bench: Bench) -> None:
    become(bench, trigger=FOLLOWS, postSync=CHAIN)

    async with bench.running(WEB):
        bench.tell(chain_sync("web", chain="c"))
        await bench.desk.until(lambda: bool(bench.desk.created))

    assert [each.deployment_chain_id for each in bench.desk.created] == ["c"]
    assert not bench.desk.chains


async def test_a_chain_command_seen_again_after_a_restart_is_the_same_deployment(
    bench: Bench,
) -> None:
    become(bench, trigger=FOLLOWS)
    for _ in range(2):
        bench.desk.handled_commands.clear()
        async with bench.running(WEB):
            bench.tell(chain_sync("web"))
            await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)

    assert len(bench.desk.created) == 1
