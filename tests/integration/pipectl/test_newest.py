# SPDX-License-Identifier: Apache-2.0
"""Which deployment an application's name stands for right after a commit, or two."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from pipecd_test_support.pipectl_site import PipectlSite
from pipecd_test_support.piped_site import BIN, ServerProcess

COMMIT = "0123456789abcdef0123456789abcdef01234567"
"""What every reported deployment deploys."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipectlSite]:
    server = ServerProcess(tmp_path_factory.mktemp("server"))
    server.start()
    try:
        made = PipectlSite(server=server)
        asyncio.run(made.register_piped("agent"))
        yield made
    finally:
        server.stop()


def test_the_deployment_of_a_commit_is_waited_for_before_it_exists(site: PipectlSite) -> None:
    """Right after a commit the newest deployment is still the one before."""
    late = site.add_application("late")
    words = ["deployment", "wait", "late", "--commit", COMMIT[:9].upper(), "--timeout", "50s"]
    with subprocess.Popen(
        [BIN / "pipectl", *words],
        env={**os.environ, **site.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        assert waiting.stderr is not None
        assert waiting.stdout is not None
        assert "late: no deployment of 0123456 yet" in waiting.stderr.readline().lower()
        asyncio.run(late.deploy(status="SUCCESS", completed_at=int(time.time())))
        said = waiting.stdout.read()

    assert waiting.returncode == 0
    assert said.startswith("SUCCESS")


def test_a_commit_that_never_comes_ends_with_a_sentence(site: PipectlSite) -> None:
    site.add_application("never")

    done = site.run("deployment", "wait", "never", "--commit", COMMIT, "--timeout", "300ms", code=3)

    assert f"'never' has no deployment of the commit {COMMIT}" in done.stderr
    assert "is it pushed?" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--commit", COMMIT), "--commit goes with the name of an application"),
        (("--latest", "--commit", COMMIT), "--commit goes with the name of an application"),
        (("late", "--commit", "HEAD"), "'HEAD' is not the hash of a commit"),
    ],
)
def test_a_commit_that_cannot_be_one_is_refused(
    site: PipectlSite, words: tuple[str, ...], sentence: str
) -> None:
    done = site.run("deployment", "wait", *words, code=2)

    assert sentence in done.stderr


def test_of_two_deployments_of_one_second_the_last_one_is_the_newest(site: PipectlSite) -> None:
    """Times have seconds; which one came last, the application knows."""
    hasty = site.add_application("hasty")

    async def deploy_thrice() -> list[str]:
        at = int(time.time())
        made = []
        for _ in range(3):
            age = int(time.time()) - at + 60
            made.append(await hasty.deploy(status="SUCCESS", completed_at=at, age_seconds=age))
        return made

    for last in asyncio.run(deploy_thrice()):
        asyncio.run(hasty.set_last(last, status="PENDING"))

        shown = json.loads(site.run("deployment", "get", "hasty", "-o", "json").stdout)

        assert shown["id"] == last
