# SPDX-License-Identifier: Apache-2.0
"""Whatever is written as a template: it renders or is explained, and nothing else happens."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pipecd_model.config import Fault
from pipecd_model.templates import BadTemplateError, RenderLimits, render
from pipecd_model.templates.names import ALLOWED, GO

LIMITS = RenderLimits(seconds=0.1)

WORDS = st.sampled_from(
    [
        *("{{", "}}", "{{-", "-}}", "{{/*", "*/}}", "(", ")", "|", ":=", "=", ",", '"', "`", "'"),
        *("if", "else", "end", "range", "with", "define", "template", "block", "break", "nil"),
        *(".", ".a", ".a.b", ".xs", "$", "$x", '"text"', "1", "-1", "1.5", "0777", "true"),
        *("%", "%s", "\n", " ", "x-y", "é", "\\"),
    ]
)
FUNCTIONS = st.sampled_from(sorted(ALLOWED | GO))
ARGUMENTS = st.sampled_from(
    ['""', '"a b"', "0", "-1", "3", "1.5", "true", "(list 1 2)", '(dict "a" 1)', ".a", ".xs", "nil"]
)
HEAVY = ["$s", "$l", '(dict "a" $l)', "(list $s $s)", "1", "1000000000", '"x"', '"%s"', "true"]
DATA = {"a": {"b": "value"}, "xs": [1, "two", None]}


def outcome(text: str) -> Fault | str:
    """What comes of a template: its text, or what is wrong with it."""
    try:
        return render(text, DATA, name="file", limits=LIMITS)
    except BadTemplateError as error:
        return error.faults[0]


def is_good(come: Fault | str) -> bool:
    return isinstance(come, str) or bool(come.message)


@given(st.lists(WORDS, max_size=30).map(" ".join))
def test_any_words_render_or_are_explained(text: str) -> None:
    assert is_good(outcome(text))


@given(st.text())
def test_any_text_renders_or_is_explained(text: str) -> None:
    assert is_good(outcome("{{" + text))


@given(FUNCTIONS, st.lists(ARGUMENTS, max_size=4))
def test_any_call_renders_or_is_explained(function: str, arguments: list[str]) -> None:
    assert is_good(outcome(f"{{{{ {function} {' '.join(arguments)} }}}}"))


def calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Calls whose arguments may be calls."""
    return st.builds(
        lambda function, arguments: f"({function} {' '.join(arguments)})",
        FUNCTIONS,
        st.lists(inner, max_size=4),
    )


QUOTED = st.text().map(lambda text: json.dumps(text, ensure_ascii=False))


@given(st.recursive(ARGUMENTS | QUOTED, calls, max_leaves=12))
def test_any_calls_in_calls_render_or_are_explained(call: str) -> None:
    assert is_good(outcome(f"{{{{ {call} }}}}"))


@given(st.recursive(ARGUMENTS, calls, max_leaves=8), st.integers(2, 60))
def test_what_a_loop_piles_up_stays_within_its_bounds(call: str, times: int) -> None:
    limits = RenderLimits(seconds=0.1, value=4096, made=65536, output=8192)
    template = f"{{{{ $x := {call} }}}}{{{{ range {times} }}}}{{{{ $x = list $x (print $x $x) }}}}"

    try:
        shown = render(template + "{{ $x }}{{ end }}", DATA, name="file", limits=limits)
    except BadTemplateError:
        shown = ""

    assert len(shown) <= 8192


@given(FUNCTIONS, st.lists(st.sampled_from(HEAVY), min_size=1, max_size=4))
def test_a_large_value_in_any_call_renders_or_is_explained(
    function: str, arguments: list[str]
) -> None:
    template = '{{ $s := repeat 90000 "aé, " }}{{ $l := until 20000 }}'

    assert is_good(outcome(f"{template}{{{{ {function} {' '.join(arguments)} }}}}"))


@given(st.text().filter(lambda text: "{{" not in text))
def test_a_text_without_actions_stays_as_it_is(text: str) -> None:
    assert render(text, {}, name="file") == text


@given(st.text(), st.text())
def test_a_value_comes_out_as_it_went_in(value: str, around: str) -> None:
    around = around.replace("{", "")

    shown = render(f"{around}{{{{ .x }}}}{around}", {"x": value}, name="file")

    assert shown == f"{around}{value}{around}"
