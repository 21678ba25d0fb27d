# SPDX-License-Identifier: Apache-2.0
"""A message to an agent is never larger than an agent takes."""

from pipecd_controlplane.usecases.agent_watch import split_into_messages
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.pipecd.push import push_pb2


def test_what_fits_is_one_message(build: MessageBuilder) -> None:
    change = push_pb2.Change(deployments=[build.deployment(id=f"d{n}") for n in range(3)])

    assert list(split_into_messages(change, 10_000)) == [change]


def test_nothing_is_one_empty_message() -> None:
    assert list(split_into_messages(push_pb2.Change(), 10)) == [push_pb2.Change()]


def test_what_does_not_fit_follows_and_nothing_is_lost(build: MessageBuilder) -> None:
    change = push_pb2.Change(
        applications=[build.application(id=f"a{n}") for n in range(7)],
        removed_application_ids=["gone"],
        deployments=[build.deployment(id=f"d{n}", summary="x" * 500) for n in range(7)],
        commands=[build.command(id=f"c{n}") for n in range(7)],
    )

    messages = list(split_into_messages(change, 2000))

    together = push_pb2.Change()
    for message in messages:
        together.MergeFrom(message)
    assert together == change
    assert len(messages) > 2
    assert all(message.ByteSize() < 2500 for message in messages)
