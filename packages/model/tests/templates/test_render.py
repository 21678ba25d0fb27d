# SPDX-License-Identifier: Apache-2.0
"""The sandbox: what a template cannot reach, cannot exceed, and cannot give away."""

import subprocess
import sys
import threading

import pytest

from pipecd_model.errors import ConfigError
from pipecd_model.templates import BadTemplateError, RenderLimits, render
from pipecd_model.templates.functions.table import FUNCTIONS
from pipecd_model.templates.names import ALLOWED, GO, REFUSED


def refusal(template: str, limits: RenderLimits | None = None) -> str:
    with pytest.raises(BadTemplateError) as caught:
        render(template, {}, name="file", limits=limits or RenderLimits())
    return caught.value.faults[0].message


_NAMES = """
    abbrev abbrevboth add add1 add1f addf adler32sum ago all any append atoi b32dec b32enc
    b64dec b64enc base bcrypt biggest buildCustomCert camelcase cat ceil chunk clean coalesce
    compact concat contains date dateInZone dateModify date_in_zone date_modify decryptAES
    deepCopy deepEqual default derivePassword dict dig dir div divf duration durationRound
    empty encryptAES env expandenv ext fail first float64 floor fromJson genCA genCAWithKey
    genPrivateKey genSelfSignedCert genSelfSignedCertWithKey genSignedCert
    genSignedCertWithKey get getHostByName has hasKey hasPrefix hasSuffix hello htmlDate
    htmlDateInZone htpasswd indent initial initials int int64 isAbs join kebabcase keys kindIs
    kindOf last list lower max maxf merge mergeOverwrite min minf mod mul mulf mustAppend
    mustChunk mustCompact mustDateModify mustDeepCopy mustFirst mustFromJson mustHas
    mustInitial mustLast mustMerge mustMergeOverwrite mustPrepend mustPush mustRegexFind
    mustRegexFindAll mustRegexMatch mustRegexReplaceAll mustRegexReplaceAllLiteral
    mustRegexSplit mustRest mustReverse mustSlice mustToDate mustToJson mustToPrettyJson
    mustToRawJson mustUniq mustWithout must_date_modify nindent nospace now omit osBase
    osClean osDir osExt osIsAbs pick pluck plural prepend push quote randAlpha randAlphaNum
    randAscii randBytes randInt randNumeric regexFind regexFindAll regexMatch regexQuoteMeta
    regexReplaceAll regexReplaceAllLiteral regexSplit repeat replace rest reverse round semver
    semverCompare seq set sha1sum sha256sum sha512sum shuffle slice snakecase sortAlpha split
    splitList splitn squote sub subf substr swapcase ternary title toDate toDecimal toJson
    toPrettyJson toRawJson toString toStrings trim trimAll trimPrefix trimSuffix trimall trunc
    tuple typeIs typeIsLike typeOf uniq unixEpoch unset until untilStep untitle upper urlJoin
    urlParse uuidv4 values without wrap wrapWith
"""
SPRIG = frozenset(_NAMES.split())
"""The functions that sprig has for texts."""


def test_every_function_of_sprig_is_allowed_or_refused_for_a_reason() -> None:
    assert ALLOWED | REFUSED.keys() == SPRIG
    assert not ALLOWED & REFUSED.keys()
    assert all(REFUSED.values())


def test_the_engine_has_the_allowed_functions_and_no_others() -> None:
    assert FUNCTIONS.keys() == ALLOWED | GO


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


@pytest.mark.parametrize(
    "template",
    [
        "{{ index .m .pw }}",
        '{{ index .m "a" .pw }}',
        '{{ index .m .pw "a" }}',
        "{{ (fromJson .json).s3crey }}",
        '{{ $x := fromJson .json }}{{ index $x "s3crey" }}',
        "{{ with fromJson .json }}{{ .s3crey }}{{ end }}",
        '{{ index (dict .pw 1) "s3crey" }}',
    ],
)
def test_a_key_that_was_computed_is_not_repeated(template: str) -> None:
    data = {"m": {"a": {}}, "pw": "s3cret", "json": '{"s3cret": 1}'}

    with pytest.raises(BadTemplateError) as caught:
        render(template, data, name="file")

    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in caught.value.faults[0].hint


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
    "wide numbers in a list": '{{ printf "%9999d" (until 200000) }}',
    "wide numbers, many": f'{{{{ printf "{"%9999d" * 1000}" {"1 " * 1000} }}}}',
    "printf of printf": (
        '{{ $x := "%[1]s%[1]s" }}{{ range until 40 }}{{ $x = printf $x $x }}{{ end }}{{ len $x }}'
    ),
    "a map in a map, many times": (
        '{{ $x := dict }}{{ range until 60 }}{{ $x = dict "a" $x "b" $x }}{{ end }}{{ $x }}'
    ),
    "a value that is nested deeply": (
        "{{ $x := list }}{{ range until 60 }}{{ $x = list $x }}{{ end }}{{ toJson $x }}"
    ),
    "JSON of JSON": (
        '{{ $x := "\\"" }}{{ range until 60 }}{{ $x = toJson $x }}{{ end }}{{ len $x }}'
    ),
    "a text that grows by its quotes": (
        '{{ $x := "\\"" }}{{ range until 60 }}{{ $x = quote $x $x }}{{ end }}{{ len $x }}'
    ),
    "a list that grows by one": (
        "{{ $x := list }}{{ range until 90000 }}{{ $x = append $x . }}{{ end }}{{ len $x }}"
    ),
    "comments with text between them": f"{{{{ range 100000 }}}}{'x{{/**/}}' * 3000}{{{{ end }}}}",
    "templates with many variables": (
        '{{define "a"}}' + "{{$x := 1}}" * 3000 + "{{end}}"
        '{{ range until 99999 }}{{ template "a" }}{{ end }}'
    ),
    "a template that calls itself in a block": (
        '{{define "a"}}{{range 2}}{{if 1}}{{template "a"}}{{end}}{{end}}{{end}}{{template "a"}}'
    ),
    "a long pipeline, many times": (
        "{{ range until 1000 }}{{ 1 " + "| print" * 900 + "}}{{ end }}"
    ),
    "a product of many numbers": (
        "{{ range until 10000 }}{{ mulf " + "1.7e308 " * 5000 + "}}{{ end }}"
    ),
    "a search in a long list": (
        "{{ $x := until 90000 }}{{ range $x }}{{ if has . $x }}{{ end }}{{ end }}"
    ),
    "one value given often": (f'{{{{ $x := repeat 4000000 "x" }}}}{{{{ print {"$x " * 10000} }}}}'),
    "a long sequence": "{{ seq 1000000000 }}",
    "a long list": "{{ untilStep 0 1000000000 1 }}",
    "a regular expression that is found everywhere and looks far": (
        '{{ range until 1000 }}{{ regexFindAll "a.*z|a" (repeat 60000 "a") -1 | len }}{{ end }}'
    ),
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


def test_a_regular_expression_that_others_never_end_is_answered() -> None:
    template = '{{ regexMatch "(a+)+$" (repeat 60000 "a" | printf "%sb") }}'

    assert render(template, {}, name="file") == "false"


def test_steps_are_counted_whatever_the_clock_says() -> None:
    template = "{{ range until 1000 }}{{ range until 90 }}{{ . }}{{ end }}{{ end }}"

    assert (
        refusal(template, RenderLimits(steps=1000, seconds=1000)) == "the template takes too long"
    )


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ range 3 }}{{ end }}", "the template loops more than 2 times"),
        ("{{ range .xs }}{{ end }}", "the template loops more than 2 times"),
        ("{{ print 1 | print | print }}", "the template calls more than 2 functions"),
        ("1234{{ print }}5", "the template writes more than 4 characters"),
        ("{{ if 1 }}{{ if 1 }}{{ if 1 }}{{ end }}{{ end }}{{ end }}", "nested too deeply"),
        ("{{ (((1))) }}", "nested too deeply"),
        (
            '{{define "a"}}{{template "a"}}{{end}}{{template "a"}}',
            "templates call each other more than 1 deep",
        ),
    ],
)
def test_what_is_too_much_is_told_with_its_limit(template: str, message: str) -> None:
    limits = RenderLimits(iterations=2, calls=2, output=4, nesting=2, blocks=2, templates=1)

    with pytest.raises(BadTemplateError) as caught:
        render(template, {"xs": [1, 2, 3]}, name="file", limits=limits)

    assert message in caught.value.faults[0].message


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", range(3), lambda: 1, RenderLimits()])
@pytest.mark.parametrize(
    "action", ["{{ .x }}", '{{ printf "%s %v %#v %T" .x .x .x .x }}', "{{ .x.y }}"]
)
def test_what_is_no_plain_data_is_refused(value: object, action: str) -> None:
    with pytest.raises(BadTemplateError):
        render(action, {"x": value}, name="file")


def test_the_limit_of_time_holds_in_any_thread() -> None:
    seen: list[str] = []
    template = "{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}"
    limits = RenderLimits(iterations=1 << 60, seconds=0.05)

    thread = threading.Thread(target=lambda: seen.append(refusal(template, limits)))
    thread.start()
    thread.join(60)

    assert seen == ["the template takes too long"]
    assert sys.getprofile() is None


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
        "ENGINE = 'pipecd_model.templates.engine';"
        "print(render('plain', {}, name='f'), ENGINE in sys.modules);"
        "print(render('{{ 1 }}', {}, name='f'), ENGINE in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "plain False\n1 True\n"
