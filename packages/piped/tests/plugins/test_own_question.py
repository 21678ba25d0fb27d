# SPDX-License-Identifier: Apache-2.0
"""piped's own questions do not fill the output of a plugin."""

import asyncio

import pytest

from pipecd_piped.plugins.plugin import is_own_question
from pipecd_piped.programs.output import Output


async def test_what_a_plugin_tells_of_pipeds_own_questions_is_not_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Asked every ten seconds, a Go plugin would say nothing else; trouble is shown still."""
    question = "/grpc.plugin.deploymentapi.v1alpha1.DeploymentService/FetchDefinedStages"
    output = Output("lab", is_noise=is_own_question)
    reader = asyncio.StreamReader()
    with caplog.at_level("INFO"):
        for line in ("started", f"handled {question}", f"failed to handle {question}"):
            reader.feed_data(f"{line}\n".encode())
        reader.feed_eof()
        await output.follow(reader)

    assert output.last() == ("started", f"failed to handle {question}")
    assert len(caplog.records) == 2
