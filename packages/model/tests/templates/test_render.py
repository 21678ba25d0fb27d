# SPDX-License-Identifier: Apache-2.0
"""The sandbox: what a template cannot reach, cannot exceed, and cannot give away."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from gotpl.funcs.sprig import text_func_map

from pipecd_model.errors import ConfigError
from pipecd_model.templates import BadTemplateError, Limits, render
from pipecd_model.templates.limits import TooLongError, time_limit
from pipecd_model.templates.names import ALLOWED, GO, REFUSED


def refusal(template: str, limits: Limits | None = None) -> str:
    with pytest.raises(BadTemplateError) as caught:
        render(template, {}, name="file", limits=limits or Limits())
    return caught.value.faults[0].message


def test_every_function_of_the_engine_is_allowed_or_refused_for_a_reason() -> None:
    assert ALLOWED | REFUSED.keys() == text_func_map().keys()
    assert not ALLOWED & REFUSED.keys()
    assert all(REFUSED.values())


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_function_is_not_there(name: str) -> None:
    with pytest.raises(BadTemplateError) as caught:
        render(f"{{{{ {name} }}}}", {}, name="file")

    assert caught.value.faults[0].hint == REFUSED[name]


@pytest.mark.parametrize("name", sorted(GO | ALLOWED))
def test_an_allowed_function_is_there(name: str) -> None:
    known = True
    try:
        render(f"{{{{ {name} }}}}", {}, name="file")
    except BadTemplateError as error:
        known = "there is no function" not in error.faults[0].message

    assert known


@pytest.mark.parametrize(
    "field",
    ["upper", "__class__", "format", "encode", "__init__.__globals__", "denominator", "_x"],
)
@pytest.mark.parametrize("value", ["text", 5, 1.5, True, ["list"]])
def test_a_value_has_none_of_pythons_attributes(field: str, value: object) -> None:
    with pytest.raises(BadTemplateError):
        render(f"{{{{ .x.{field} }}}}", {"x": value}, name="file")


def test_call_has_nothing_to_call() -> None:
    assert "there is no function 'call'" in refusal("{{ call .x }}")


def test_an_error_is_one_of_configuration() -> None:
    with pytest.raises(ConfigError):
        render("{{ .x }}", {}, name="file")


def test_a_missing_key_can_be_let_through() -> None:
    shown = render('{{ .x }} {{ index . "y" }}', {}, name="f", missing_key_error=False)

    assert shown == "<no value> <no value>"


def test_bytes_that_are_no_utf8_pass_through() -> None:
    raw = bytes(range(256))
    data = {"raw": raw.decode(errors="surrogateescape")}

    shown = render("{{ .raw }}{{ .raw | b64enc | b64dec }}", data, name="file")

    assert shown.encode(errors="surrogateescape") == raw + raw


def test_binary_base64_is_opened_to_its_bytes() -> None:
    shown = render("{{ .x | b64dec }}|{{ .y | b32dec }}", {"x": "AP+A", "y": "AD7YA==="}, name="f")

    assert shown.encode(errors="surrogateescape") == b"\x00\xff\x80|\x00\xff\x80"


def test_what_a_function_says_about_a_secret_is_not_repeated() -> None:
    for template in (
        "{{ .pw | mustFromJson }}",
        '{{ mustRegexMatch .pw "x" }}',
        "{{ index .pw .pw }}",
        "{{ urlParse .pw }}",
        "{{ semverCompare .pw .pw }}",
        "{{ div .pw 0 }}",
        "{{ dig .pw .pw .pw }}",
        "{{ printf 1 .pw }}",
    ):
        with pytest.raises(BadTemplateError) as caught:
            render(template, {"pw": "(s3cret %zz"}, name="file")
        assert "s3cret" not in str(caught.value), template


HOSTILE = {
    "a long text": '{{ repeat 1000000000 "x" }}',
    "a text that doubles": (
        '{{ $x := "aaaa" }}{{ range until 60 }}{{ $x = print $x $x }}{{ end }}{{ len $x }}'
    ),
    "a list that doubles": (
        "{{ $x := list 1 }}{{ range until 60 }}{{ $x = concat $x $x }}{{ end }}{{ len $x }}"
    ),
    "a list in a list, many times": (
        "{{ $x := list 1 }}{{ range until 60 }}{{ $x = list $x $x }}{{ end }}{{ $x }}"
    ),
    "many large variables": "".join(f'{{{{ $a{n} := repeat 4000000 "x" }}}}' for n in range(1000)),
    "loops in loops": "{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}",
    "a loop over a number": "{{ range 1000000000000 }}{{ end }}",
    "a loop with much in it": f"{{{{ range 10000000 }}}}{'{{if $}}{{end}}' * 1500}{{{{ end }}}}",
    "templates that call two": "".join(
        f'{{{{define "{n}"}}}}{{{{template "{n + 1}"}}}}{{{{template "{n + 1}"}}}}{{{{end}}}}'
        for n in range(45)
    )
    + '{{define "45"}}{{end}}{{template "0"}}',
    "a template that calls itself": '{{define "a"}}{{template "a"}}{{end}}{{template "a"}}',
    "much output": f"{{{{ range 100000 }}}}{'x' * 1000}{{{{ end }}}}",
    "a wide number": '{{ printf "%1000000000d" 1 }}',
    "a width as a value": '{{ printf "%*d" 1000000000 1 }}',
    "one value printed often": (
        f'{{{{ $x := repeat 100000 "x" }}}}{{{{ printf "{"%[1]s" * 5000}" $x }}}}'
    ),
    "one value given often": (f'{{{{ $x := repeat 4000000 "x" }}}}{{{{ print {"$x " * 10000} }}}}'),
    "a long sequence": "{{ seq 1000000000 }}",
    "a long list": "{{ untilStep 0 1000000000 1 }}",
    "a regular expression": '{{ regexMatch "(a+)+$" (repeat 60000 "a" | printf "%sb") }}',
    "a regular expression that repeats": '{{ regexFind "((a{100}){100}){100}" "a" }}',
    "a regular expression on a long text": '{{ regexFind "a" (repeat 1000000 "b") }}',
    "a replacement in every place": ('{{ replace "" (repeat 1000000 "x") (repeat 1000000 "y") }}'),
    "a long separator": '{{ join (repeat 1000000 "x") (until 1000) }}',
    "a deep indentation": '{{ nindent 100000 (repeat 100000 "\\n") }}',
    "a number in base eight": f"{{{{ 0{'7' * 60} }}}}",
    "a number of many digits": f"{{{{ {'9' * 5000} }}}}",
    "a long version": '{{ semverCompare (repeat 100000 " ") "1" }}',
    "deep JSON": '{{ mustFromJson (repeat 100000 "[") }}',
    "braces": "{{" * 500_000,
    "comments that do not end": "{{/* }}" * 100_000,
    "quotes that do not end": '{{"' * 100_000,
    "parentheses": f"{{{{ {'(' * 30000}1{')' * 30000} }}}}",
    "blocks in blocks": "{{if 1}}" * 1900 + "{{end}}" * 1900,
    "a chain of else": "{{if 0}}" + "{{else if 0}}" * 3000 + "{{end}}",
    "many actions": "{{1}}" * 100_000,
    "one huge text": "x" * (2 << 20) + "{{1}}",
}


@pytest.mark.parametrize(
    "template", [pytest.param(text, id=name) for name, text in HOSTILE.items()]
)
def test_a_hostile_template_is_refused(template: str) -> None:
    assert refusal(template)


def test_the_limit_of_time_holds_in_any_thread() -> None:
    seen: list[str] = []
    template = "{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}"
    limits = Limits(iterations=1 << 60, seconds=0.05)

    thread = threading.Thread(target=lambda: seen.append(refusal(template, limits)))
    thread.start()
    thread.join(60)

    assert seen == ["the template takes too long"]
    assert sys.getprofile() is None


def test_what_others_clean_up_in_between_is_not_disturbed() -> None:
    """An exception in a finalizer is lost, and with it the limit would be."""

    cleaned: list[int] = []

    def clean_up_and_work() -> None:
        cleaned.extend(abs(number) for number in range(5000))
        json.dumps({"a": 1}, indent=1)

    with pytest.raises(TooLongError), time_limit(0, within=(str(Path(json.__file__).parent),)):
        clean_up_and_work()

    assert len(cleaned) == 5000


def test_a_profiler_that_was_there_is_there_again() -> None:
    def profiler(*_: object) -> None:
        pass

    sys.setprofile(profiler)
    try:
        render("{{ 1 }}", {}, name="file")
        kept = sys.getprofile()
    finally:
        sys.setprofile(None)

    assert kept is profiler


def test_the_engine_is_loaded_only_for_a_template() -> None:
    program = (
        "import sys; from pipecd_model.templates import render;"
        "print(render('plain', {}, name='f'), 'gotpl' in sys.modules);"
        "print(render('{{ 1 }}', {}, name='f'), 'gotpl' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "plain False\n1 True\n"
