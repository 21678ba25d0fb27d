# SPDX-License-Identifier: Apache-2.0
"""Files that somebody wrote to do harm: a clear error, or nothing, and never a long wait.

Each of these takes other readers minutes, gigabytes or the process itself. The time limit of a test
is far above what any machine needs here and far below what the attack wants.
"""

import resource
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipecd_model import paths
from pipecd_model.config import ConfigFaultsError, load_application
from pipecd_model.lint import lint
from pipecd_model.regex import BadRegexError, compile_regex
from pipecd_model.strategy import QUICK_SYNC, choose
from pipecd_wire.model import deployment_pb2

HEAD = "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n"
MEMORY = 300 << 20  # bytes more than before that a file may take


def bomb() -> str:
    lines = ["  a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return HEAD + "\n".join(lines) + "\n"


HOSTILE = {
    "a bomb of aliases": bomb(),
    "an alias inside of itself": HEAD + "  labels: &a {b: *a}\n",
    "an object": HEAD + "  name: !!python/object/apply:os.system [echo hi]\n",
    "a key twice": HEAD + "  name: a\n  name: b\n",
    "deep nesting": HEAD + "  name: " + "[" * 50_000 + "]" * 50_000 + "\n",
    "deep mappings": HEAD + "  name: " + "{a: " * 50_000 + "}" * 50_000 + "\n",
    "a null byte": HEAD + "  name: a\0b\n",
    "a number of many digits": HEAD + "  timeout: " + "9" * 1_000_000 + "\n",
    "a stage whose name is a list": HEAD + "  pipeline: {stages: [{name: [WAIT]}]}\n",
    "a stage whose name is a mapping": HEAD + "  pipeline: {stages: [{name: {WAIT: 1}}]}\n",
    "a huge expression": HEAD + "  commitMatcher: {pipeline: '" + "(" * 5_000 + "'}\n",
    "an expression that explodes": HEAD + "  commitMatcher: {pipeline: '((a{900}){900}){900}'}\n",
    "a pattern that explodes": HEAD + "  trigger: {onCommit: {paths: ['((a{900}){900}){900}']}}\n",
}


@pytest.fixture
def bounded_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < MEMORY


@pytest.mark.timeout(20)
@pytest.mark.usefixtures("bounded_memory")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_it_is_refused_with_a_place(text: str) -> None:
    with pytest.raises(ConfigFaultsError) as caught:
        load_application(text, file="app.pipecd.yaml")

    assert caught.value.faults[0].line > 0
    assert len(str(caught.value)) < 10_000
    assert lint(text, file="app.pipecd.yaml").faults


@pytest.mark.timeout(20)
def test_a_file_of_100_mb_is_refused() -> None:
    with pytest.raises(ConfigFaultsError, match="larger than 4 MiB"):
        load_application(b"#" * (100 << 20), file="app.pipecd.yaml")


@pytest.mark.timeout(20)
def test_an_expression_that_others_think_about_for_ever_is_read_at_once() -> None:
    config = load_application(
        HEAD + "  commitMatcher: {quickSync: '(a+)+$'}\n  pipeline: {stages: [{name: K8S_SYNC}]}\n",
        file="app.pipecd.yaml",
    ).config
    trigger = deployment_pb2.DeploymentTrigger()
    trigger.commit.message = "a" * 100_000 + "!"

    assert choose(config, trigger, first=False, quick_sync_offered=True) is None
    trigger.commit.message = "a" * 100_000
    chosen = choose(config, trigger, first=False, quick_sync_offered=True)
    assert chosen is not None
    assert chosen.strategy == QUICK_SYNC


@pytest.mark.timeout(20)
def test_so_is_such_a_pattern() -> None:
    assert not paths.matches(["(a+)+b"], "a" * 100_000)
    assert not paths.matches(["**/" * 100 + "x"], "a/" * 2_000 + "y")


def test_a_file_name_that_is_no_utf_8_can_be_compared() -> None:
    assert paths.matches(["docs/**"], "docs/\udcff.txt")


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_an_expression_or_is_refused(pattern: str, text: str) -> None:
    try:
        regex = compile_regex(pattern)
    except BadRegexError:
        return
    assert isinstance(regex.is_found_in(text), bool)


@given(st.binary(max_size=400))
def test_any_bytes_are_judged(data: bytes) -> None:
    assert lint(HEAD.encode() + data, file="app.pipecd.yaml").faults is not None
    assert lint(data, file="app.pipecd.yaml").faults
