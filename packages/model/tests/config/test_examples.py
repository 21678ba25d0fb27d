# SPDX-License-Identifier: Apache-2.0
"""The documents' own examples load as they are printed, or the error shows how to mend them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipecd_model.config import ApplicationConfig
from pipecd_model.lint import lint

EXAMPLES: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("examples.yaml").read_text()
)
BY_NAME = {str(example["what"]): example for example in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=BY_NAME)
def test_an_example_loads_as_it_is_printed_or_is_mended(example: dict[str, Any]) -> None:
    problems = lint(example["text"], file="app.pipecd.yaml")

    fault = example.get("fault")
    if fault is None:
        assert problems.faults == ()
        assert problems.config is not None
    else:
        (told,) = problems.faults
        assert told.line == fault["line"]
        assert fault["says"] in told.message
        assert fault["hint"] in told.hint


def test_with_the_hint_followed_it_loads() -> None:
    text = BY_NAME["the script-run document's third application"]["text"]
    lines = []
    for line in text.splitlines():
        indent, mark, command = line.partition('- "')
        mended = f"{indent}- |\n{indent}    {command.removesuffix(chr(34))}"
        lines.append(mended if mark else line)

    problems = lint("\n".join(lines), file="app.pipecd.yaml")

    assert problems.faults == ()
    assert isinstance(problems.config, ApplicationConfig)
    script = problems.config.pipeline.stages[4].with_
    assert '{"text":"failed to deploy: rollback"}' in script["runsOnRollback"][0]
