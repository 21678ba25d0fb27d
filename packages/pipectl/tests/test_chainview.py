# SPDX-License-Identifier: Apache-2.0
"""What a chain waits for, and why it ended, in a sentence and in a table."""

import pytest

from pipecd_pipectl.chainview import describe_chain, print_chain, print_chains
from pipecd_wire.model import deployment_chain_pb2 as pb
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment

NOW = 1_800_000_000.0


def node(
    name: str, status: str = "PENDING", reason: str = "", *, deployment: bool = True
) -> pb.ChainNode:
    made = pb.ChainNode(application_ref=pb.ChainApplicationRef(application_name=name))
    if deployment:
        made.deployment_ref.deployment_id = f"d-{name}"
    if deployment or reason:
        made.deployment_ref.status = model.DeploymentStatus.Value(f"DEPLOYMENT_{status}")
        made.deployment_ref.status_reason = reason
    return made


def block(status: str, *nodes: pb.ChainNode) -> pb.ChainBlock:
    return pb.ChainBlock(
        status=pb.ChainBlockStatus.Value(f"DEPLOYMENT_BLOCK_{status}"), nodes=nodes
    )


def chain(status: str, *blocks: pb.ChainBlock) -> pb.DeploymentChain:
    return pb.DeploymentChain(
        id="c1",
        status=pb.ChainStatus.Value(f"DEPLOYMENT_CHAIN_{status}"),
        blocks=blocks,
        created_at=int(NOW) - 60,
    )


def queued(name: str, sentence: str) -> dict[str, QueuedDeployment]:
    return {f"d-{name}": QueuedDeployment(deployment_id=f"d-{name}", sentence=sentence)}


def test_a_chain_that_succeeded_says_nothing() -> None:
    assert describe_chain(chain("SUCCESS", block("SUCCESS", node("a", "SUCCESS"))), {}) == ""


def test_a_chain_that_runs_says_what_its_first_open_deployment_waits_for() -> None:
    running = chain(
        "RUNNING",
        block("SUCCESS", node("a", "SUCCESS")),
        block("PENDING", node("b")),
        block("PENDING", node("c")),
    )

    said = describe_chain(running, queued("b", "the application is frozen"))

    assert said == "block 1: b PENDING: the application is frozen"


def test_a_chain_that_ended_names_the_deployment_that_ended_it() -> None:
    """Not one that only never began."""
    ended = chain(
        "FAILURE",
        block("FAILURE", node("slow", "PENDING"), node("a", "FAILURE", "SCRIPT_RUN failed")),
        block("CANCELLED", node("b", "CANCELLED", "block 0 failed")),
    )

    assert describe_chain(ended, {}) == "block 0: a FAILURE: SCRIPT_RUN failed"


def test_what_a_deployment_waited_for_does_not_hide_how_it_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The queue was read a moment before, or after."""
    ended = chain("FAILURE", block("FAILURE", node("a", "FAILURE", "it broke")))

    print_chain(ended, queued("a", "a place"), wide=True, now=NOW)

    shown = capsys.readouterr().out
    assert "it broke" in shown
    assert "a place" not in shown


def test_what_has_no_deployment_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    made = chain(
        "RUNNING",
        block("RUNNING", node("a", "RUNNING")),
        block("PENDING", node("b", deployment=False)),
        block("PENDING"),
        block("CANCELLED", node("c", "CANCELLED", "its piped refused it", deployment=False)),
    )

    print_chain(made, {}, wide=True, now=NOW)
    print_chains([made], {}, wide=True, now=NOW)

    shown = capsys.readouterr().out
    assert "its piped has not made the deployment yet" in shown
    assert "no application matched when the chain began" in shown
    assert "its piped refused it" in shown
    assert "a > b > - > c" in shown
    assert "0/4" in shown


def test_words_of_others_cannot_write_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = chain("FAILURE", block("FAILURE", node("a\x1b[2J", "FAILURE", "x\n\x1b]0;t\x07")))

    print_chain(hostile, {}, wide=True, now=NOW)
    print_chains([hostile], {}, wide=True, now=NOW)

    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown
    assert "\x1b]0" not in shown
    assert "\x07" not in shown
