# SPDX-License-Identifier: Apache-2.0
"""Plugins of other makers under a real piped: nothing runs beside itself, and no line is lost.

The plugin is `pipecd_test_support.go_plugin`, which has the habits of one made with the Go SDK.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipecd_runtime.ports import pick_port
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_test_support.programs import GO_PLUGIN
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.rpc import call

LIMIT = 60


async def until(holds: Callable[[], object], site: PipedSite) -> None:
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while not holds():  # noqa: ASYNC110 - what is waited for happens in other processes
                await asyncio.sleep(0.02)


def go_plugin(site: PipedSite, **config: Any) -> dict[str, Any]:
    """The plugin, as piped's configuration names it."""
    plugin = site.folder / "go-plugin"
    plugin.write_text(f"#!{sys.executable}\n{GO_PLUGIN.read_text()}")
    plugin.chmod(0o755)
    return {
        "name": "scripts",
        "url": f"file://{plugin}",
        "port": pick_port(),
        "config": {"record": str(site.folder / "facts"), "tick": 0.1, **config},
    }


def facts(site: PipedSite, about: str) -> list[list[Any]]:
    """What the plugin has noted."""
    return [fact for line in site.records("facts") if (fact := json.loads(line))[0] == about]


def script(run: str, **more: str) -> dict[str, Any]:
    return {"name": "SCRIPT_RUN", "with": {"run": run, **more}}


async def test_a_script_of_a_go_plugin_runs_and_is_rolled_back(
    site: PipedSite, client: SiteClient
) -> None:
    record = site.record
    stages = [
        script(f"echo one >> {record}; echo said one", onRollback=f"echo undone >> {record}"),
        script("exit 3"),
    ]
    commit = site.commit_application("web", stages)
    site.configure(go_plugin(site))
    site.start()

    ended = await client.completed(await client.deploy("web", commit))

    assert ended.status == pb.DEPLOYMENT_FAILURE, ended.status_reason
    assert site.records() == ["one", "undone"]
    assert "said one" in await client.log(ended, ended.stages[0])


def noting_others(site: PipedSite) -> str:
    """Write down which of those processes live still."""
    lives = "[ -e /proc/$pid/status ] && ! grep -q 'State:.Z' /proc/$pid/status"
    beside = f'echo "beside $pid" >> {site.record}'
    return f"for pid in $(cat {site.folder}/pids); do if {lives}; then {beside}; fi; done"


def leaving(site: PipedSite) -> str:
    """A script that starts silent processes of every kind and waits for them.

    Run a second time, it writes down which of them live beside it, and ends.
    """
    pids = site.folder / "pids"
    silent = f"echo $$ >> {pids}; exec sleep 1001"
    return f"""
        exec > /dev/null 2>&1
        if [ -e {site.folder}/left ]; then
            {noting_others(site)}
            echo again >> {site.record}
            exit 0
        fi
        echo $$ >> {pids}
        sh -c '{silent}' &
        setsid sh -c '{silent}' &
        (setsid sh -c '(sh -c "{silent.replace("$", chr(92) + "$")}" &)' &)
        env -i sh -c '{silent}' &
        setsid sh -c 'env -i sh -c "{silent.replace("$", chr(92) + "$")}"; true' &
        sh -c 'trap "" TERM; {silent}' &
        while [ $(wc -l < {pids}) -lt {LEFT} ]; do sleep 0.05; done
        touch {site.folder}/left
        wait
        """


LEFT = 7
"""Processes that it leaves, itself included."""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left_processes(site: PipedSite) -> list[int]:
    return [int(pid) for pid in site.records("pids") if is_alive(int(pid))]


async def test_nothing_that_a_go_plugin_has_started_survives_into_the_next_pipeds_stage(
    site: PipedSite, client: SiteClient
) -> None:
    """They write nothing, so they do not notice that plugin and piped are gone."""
    commit = site.commit_application("web", [script(leaving(site))])
    site.configure(go_plugin(site))
    site.start()
    deployment_id = await client.deploy("web", commit)
    await until((site.folder / "left").exists, site)

    site.signal(signal.SIGKILL)
    await site.ended()
    assert len(left_processes(site)) == LEFT
    site.start()
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert site.records() == ["again"]
    assert left_processes(site) == []


async def test_nothing_that_a_killed_go_plugin_has_started_runs_beside_its_next_run(
    site: PipedSite, client: SiteClient
) -> None:
    commit = site.commit_application("web", [script(leaving(site))])
    site.configure(go_plugin(site))
    site.start()
    deployment_id = await client.deploy("web", commit)
    await until((site.folder / "left").exists, site)
    [[_, pid]] = facts(site, "serving")

    os.kill(pid, signal.SIGKILL)
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert site.records() == ["again"]
    assert left_processes(site) == []


async def test_a_stopping_piped_leaves_nothing_of_a_go_plugin(
    site: PipedSite, client: SiteClient
) -> None:
    """It does not end within the grace: what it has begun ends with the plugin, and begins anew."""
    commit = site.commit_application("web", [script(leaving(site))])
    site.configure(go_plugin(site))
    site.start("--grace-period", "1s")
    deployment_id = await client.deploy("web", commit)
    await until((site.folder / "left").exists, site)

    assert await site.stop() == 0
    assert left_processes(site) == []
    site.start()
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert site.records() == ["again"]


def gated(site: PipedSite, name: str) -> str:
    """A script that ends when the test lets it."""
    return (
        f"echo {name} began >> {site.record}; "
        f"while [ ! -e {site.folder}/gate ]; do sleep 0.05; done; "
        f"echo {name} ended >> {site.record}; echo said {name}"
    )


async def test_a_stage_of_a_go_plugin_that_ends_within_the_grace_is_kept(
    site: PipedSite, client: SiteClient
) -> None:
    """Told to stop, the plugin could not say how its stage has ended."""
    stages = [script(gated(site, "first")), script(f"echo second >> {site.record}")]
    commit = site.commit_application("web", stages)
    site.configure(go_plugin(site))
    site.start("--grace-period", "50s")
    deployment_id = await client.deploy("web", commit)
    await until(lambda: site.records() == ["first began"], site)

    site.signal(signal.SIGTERM)
    await until(lambda: "plugin.stopping" in site.log_text(), site)
    assert facts(site, "told to stop") == []
    (site.folder / "gate").touch()
    assert await site.ended() == 0

    noted = [json.loads(line)[0] for line in site.records("facts")]
    assert noted == ["serving", "script", "script ended", "told to stop", "stopped"]
    left = await client.until(deployment_id, lambda it: bool(it.stages))
    assert [stage.status for stage in left.stages] == [pb.STAGE_SUCCESS, pb.STAGE_NOT_STARTED_YET]
    site.start()
    ended = await client.completed(deployment_id)
    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert site.records() == ["first began", "first ended", "second"]
    assert "said first" in await client.log(ended, ended.stages[0])


async def test_a_second_signal_does_not_wait_for_the_stage_of_a_go_plugin(
    site: PipedSite, client: SiteClient
) -> None:
    commit = site.commit_application("web", [script(leaving(site))])
    site.configure(go_plugin(site))
    site.start("--grace-period", "1h")
    await client.deploy("web", commit)
    await until((site.folder / "left").exists, site)

    site.signal(signal.SIGTERM)
    await until(lambda: "plugin.stopping" in site.log_text(), site)
    site.signal(signal.SIGTERM)

    assert await site.ended() == 0
    assert left_processes(site) == []


LINES = 300


def talking(site: PipedSite) -> str:
    """A script that says many lines at once, and ends when it runs a second time."""
    return (
        f"run=$(cat {site.record} 2>/dev/null | wc -l); n=0; while [ $n -lt {LINES} ]; "
        'do echo "run $run line $n"; n=$((n+1)); done; '
        f"echo said >> {site.record}; [ $run -gt 0 ] || exec sleep 1003"
    )


def all_said() -> list[str]:
    return [f"run {run} line {number}" for run in (0, 1) for number in range(LINES)]


async def shown(client: SiteClient, deployment_id: str) -> list[str]:
    """The lines that the control plane has of the first stage."""
    request = apiservice.ListStageLogsRequest(deployment_id=deployment_id)
    answer = await call(client.api.ListStageLogs, request)
    return [
        block.log
        for log in answer.stage_logs.values()
        for block in log.blocks
        if block.log.startswith("run ")
    ]


async def until_shown(client: SiteClient, deployment_id: str, site: PipedSite) -> None:
    """Wait until the control plane has all lines of the first run."""
    with site.explained():
        async with asyncio.timeout(LIMIT):
            while len(await shown(client, deployment_id)) < LINES:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)


async def test_all_lines_of_a_killed_go_plugin_and_of_its_next_run_are_shown_in_order(
    site: PipedSite, client: SiteClient
) -> None:
    """Both runs count from the second in which they began; the first one said 300 lines in it."""
    commit = site.commit_application("web", [script(talking(site))])
    site.configure(go_plugin(site))
    site.start()
    deployment_id = await client.deploy("web", commit)
    await until_shown(client, deployment_id, site)
    [[_, pid]] = facts(site, "serving")

    os.kill(pid, signal.SIGKILL)
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    lines = [line for line in await client.log(ended, ended.stages[0]) if line[:4] == "run "]
    assert lines == all_said()


async def test_all_lines_of_a_go_plugin_are_shown_when_piped_was_killed(
    site: PipedSite, client: SiteClient
) -> None:
    commit = site.commit_application("web", [script(talking(site))])
    site.configure(go_plugin(site))
    site.start()
    deployment_id = await client.deploy("web", commit)
    await until_shown(client, deployment_id, site)

    site.signal(signal.SIGKILL)
    await site.ended()
    site.start()
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    lines = [line for line in await client.log(ended, ended.stages[0]) if line[:4] == "run "]
    assert lines == all_said()
    await until(lambda: not any((site.data / "outbox" / "numbers").iterdir()), site)


async def test_nothing_of_a_cancelled_script_of_a_go_plugin_lives_beside_its_rollback(
    site: PipedSite, client: SiteClient
) -> None:
    """The plugin ends the call of a cancelled stage and leaves its script running."""
    undo = f"exec > /dev/null 2>&1; {noting_others(site)}; echo undone >> {site.record}"
    commit = site.commit_application("web", [script(leaving(site), onRollback=undo)])
    site.configure(go_plugin(site))
    site.start()
    deployment_id = await client.deploy("web", commit)
    await until((site.folder / "left").exists, site)
    assert len(left_processes(site)) == LEFT

    await client.cancel(deployment_id)
    ended = await client.completed(deployment_id)

    assert ended.status == pb.DEPLOYMENT_CANCELLED, ended.status_reason
    assert site.records() == ["undone"]
    assert left_processes(site) == []
