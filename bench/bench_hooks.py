# SPDX-License-Identifier: Apache-2.0
"""How long a push to a git host waits: over HTTP, with a hook, to the first stage that runs.

The git host is git's own program behind a small HTTP server, which sends the hook as hosts do: when
it has taken the push. The agent polls once an hour, so nothing but the hook makes it look. The time
begins with the hook and ends with the first command of the first stage.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import httpx2
from report import Bar, info, report
from world import World, world

from pipecd_test_support.git_hooks import push_as
from pipecd_test_support.git_http import GitHost
from pipecd_wire.pipecd.api import repositories_pb2 as pb
from pipecd_wire.rpc import call

ROUNDS = 30
PAUSE_SECONDS = 1.0
"""Between two pushes: people are slower still."""

APPLICATION = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: pushed
  pipeline:
    stages:
      - name: SCRIPT_RUN
        with:
          run: date +%s%N > "{out}/first-$SR_TRIGGERED_COMMIT_HASH"
"""


async def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="pipecd-bench-") as folder,
        GitHost(Path(folder) / "host").serving() as host,
    ):
        remote = host.make_repository("acme/shop.git")
        async with world(Path(folder), remote=remote) as running:
            await measure(running, host, remote)


async def measure(running: World, host: GitHost, remote: str) -> None:
    out = running.root / "out"
    out.mkdir()
    running.write("pushed/app.pipecd.yaml", APPLICATION.format(out=out))
    head = running.commit("add the application")
    running.git("push", "--quiet", remote, "main")
    await call(running.repositories.HintRepository, pb.HintRepositoryRequest(repository=remote))
    await running.add_application("pushed")
    await running.deployments_of(head, 1, completed=True)
    hook = await call(
        running.repositories.AddHook, pb.AddHookRequest(name="bench", host=pb.Hook.GITHUB)
    )
    sent: list[tuple[int, float]] = []
    with httpx2.Client(trust_env=False) as client:

        def send_hook() -> None:
            made = push_as(
                pb.Hook.GITHUB,
                hook.secret,
                repository="acme/shop",
                domain=host.address.removeprefix("http://"),
                commit=running.git("rev-parse", "HEAD").strip(),
            )
            begun = time.time_ns()
            answer = client.post(hook.url, content=made.body, headers=made.headers)
            answer.raise_for_status()
            sent.append((begun, (time.time_ns() - begun) / 1e6))

        host.on_push = send_hook
        waits = [await push(running, remote, out, number) - sent[-1][0] for number in range(ROUNDS)]
    milliseconds = [each / 1e6 for each in waits[1:]]  # the first one also warms everything up
    report("hook-to-running-p95", find_p95(milliseconds), "ms", Bar("<=", 1000))
    report("hook-to-running-median", statistics.median(milliseconds), "ms", None)
    info("hook-answered-p95", find_p95([each for _, each in sent[1:]]), "ms")


async def push(running: World, remote: str, out: Path, number: int) -> int:
    """Push one commit, and return when its first stage began, in nanoseconds."""
    await asyncio.sleep(PAUSE_SECONDS)
    running.write("pushed/number.txt", f"{number}\n")
    head = running.commit(f"change {number}")
    await asyncio.to_thread(running.git, "push", "--quiet", remote, "main")
    await running.deployments_of(head, 1, completed=True)
    return int((out / f"first-{head}").read_text())


def find_p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


if __name__ == "__main__":
    asyncio.run(main())
