# SPDX-License-Identifier: Apache-2.0
"""What Terraform says becomes lines for people, and its errors sentences that help."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pipecd_plugin_terraform.masking import Mask
from pipecd_plugin_terraform.messages import Diagnostic, MessageReader, explain

from pipecd_sdk import Severity
from pipecd_sdk.kit import gojson

LOCKED = """Lock Info:
  ID:        7
  Operation: OperationTypePlan
  Who:       ann@desk
  Created:   2026-01-02 03:04:05.6 +0000 UTC
"""


def message(kind: str, text: str, **more: Any) -> str:
    return json.dumps({"@level": "info", "@message": text, "type": kind, **more})


@pytest.mark.parametrize(
    ("line", "shown", "severity"),
    [
        ("plain text", "plain text", Severity.INFO),
        (message("apply_progress", "a.b: Still creating... [10s elapsed]"),
         "a.b: Still creating... [10s elapsed]", Severity.INFO),
        (message("change_summary", "Apply complete!"), "Apply complete!", Severity.SUCCESS),
        (message("refresh_complete", "a.b: Refresh complete"), "", Severity.INFO),
        (message("outputs", "Outputs: 1", outputs={"b": {"value": "x"}, "a": {"value": "y"}}),
         "Outputs: a, b", Severity.INFO),
        ('{"@level": "info", "cut', "(a message that is too long to be shown)", Severity.INFO),
        ('{"@message": ', "(a message that is too long to be shown)", Severity.INFO),
        ("{}", "{}", Severity.INFO),
        ("[1", "[1", Severity.INFO),
        (message("x", "a \x1b]0;evil\x07\nb"), "a \\x1b]0;evil\\x07 b", Severity.INFO),
    ],
)  # fmt: skip
def test_a_line_is_shown_as_people_read_it(line: str, shown: str, severity: Severity) -> None:
    found = MessageReader().translate(line)

    assert (found.text, found.severity) == (shown, severity)


def test_a_diagnostic_has_its_place_and_its_detail() -> None:
    reader = MessageReader()
    place = {"filename": "main.tf", "start": {"line": 3}}
    given = {"severity": "error", "summary": "No", "detail": "Because.\nReally.", "range": place}
    found = reader.translate(message("diagnostic", "Error: No", diagnostic=given))

    assert found.text == "Error: No\n  on main.tf line 3\n  Because.\n  Really."
    assert found.severity is Severity.ERROR
    assert [each.summary for each in reader.errors] == ["No"]
    reader.translate(message("diagnostic", "x", diagnostic="nonsense"))
    reader.translate(message("diagnostic", "x", diagnostic={"severity": "warning"}))
    assert len(reader.errors) == 1


def test_a_masked_value_is_not_shown_however_it_is_written() -> None:
    reader = MessageReader(mask=Mask(['hu"sh\nsecond line']))

    assert "hu" not in reader.translate(message("x", 'is hu"sh\nsecond line')).text
    assert reader.translate("second line").text == "(secret)"


@pytest.mark.parametrize("secret", ["hush<pw>&more", 'hüsh"pässword', "hush\\back", "hush\ttab"])
@pytest.mark.parametrize("write", [json.dumps, gojson.dumps], ids=["plain", "as Go does"])
def test_a_masked_value_is_not_shown_although_json_writes_it_otherwise(
    secret: str, write: Callable[[Any], str]
) -> None:
    reader = MessageReader(mask=Mask([secret]))
    diagnostic = {"severity": "error", "summary": f"No {secret}", "detail": f"Because {secret}."}
    lines = [
        {"@message": f"a.b: (local-exec): {secret}", "type": "provision_progress"},
        {"@message": "Error", "type": "diagnostic", "diagnostic": diagnostic},
    ]

    shown = [reader.translate(write(each)).text for each in lines]

    assert shown == ["a.b: (local-exec): (secret)", "Error: No (secret)\n  Because (secret)."]
    assert explain("terraform apply", reader.errors, exit_code=1).reason().endswith("(secret).")
    inner = write({"password": secret})
    assert Mask([secret]).apply(inner) == inner.replace(write(secret)[1:-1], "(secret)")


def test_a_message_in_pieces_is_told_by_its_first_one() -> None:
    """Outputs are shown without their values, however long these are; an error is explained."""
    reader = MessageReader(mask=Mask(["hush-hush"]))
    text = "x" * 200
    given = {"severity": "error", "summary": 'No "way"', "detail": text}
    error = {"@level": "error", "@message": 'Error: No "way" hush-hush', "type": "diagnostic"}
    messages = [
        {"@level": "info", "@message": "Outputs: 1", "type": "outputs", "outputs": {"a": text}},
        {**error, "diagnostic": given},
        {"@level": "info", "@message": text, "type": "provision_progress"},
        {"@level": "info", "@message": "Done", "type": "version"},
    ]

    shown = []
    for each in messages:
        line = json.dumps(each, separators=(",", ":"))
        shown += [reader.translate(line[at : at + 100]) for at in range(0, len(line), 100)]

    cut = "(a message that is too long to be shown)"
    assert [each.text for each in shown if each.text] == [
        f"Outputs: 1 {cut}",
        f'Error: No "way" (secret) {cut}',
        cut,
        "Done",
    ]
    failed = explain("terraform apply", reader.errors, exit_code=1)
    assert failed.reason() == 'terraform apply failed: No "way" (secret)'
    assert reader.translate("plain").text == "plain"


def test_thousands_of_secrets_are_masked() -> None:
    """A state may hold a password for each of many users; plans are long."""
    secrets = [f"{number * 7919:05}-hush" for number in range(5_000)]
    text = "\n".join(f"~ a[{number}] = {each}" for number, each in enumerate(secrets))

    shown = Mask(secrets).apply(text * 5)

    assert "hush" not in shown
    assert shown.count("(secret)") == 25_000


@pytest.mark.parametrize(
    ("errors", "code", "said"),
    [
        ([], 1, "terraform apply failed with exit code 1 (the log says why)"),
        ([], -9, "terraform apply was ended by signal 9 (the log of the machine may say why"),
        ([Diagnostic(is_error=True, summary="Bad", detail="thing\nmore", address="a.b")], 1,
         "terraform apply failed: Bad (a.b): thing"),
        ([Diagnostic(is_error=True, summary="Saved plan is stale")], 1, "the plan is stale"),
        ([Diagnostic(is_error=True, summary="Error acquiring the state lock", detail="no info")],
         1, "terraform apply failed: Error acquiring the state lock: no info"),
        ([Diagnostic(is_error=True, summary="Error acquiring the state lock", detail=LOCKED)],
         1, "the state is locked by ann@desk since 2026-01-02 03:04:05 +0000 UTC for plan (lock"),
        ([Diagnostic(is_error=True, summary="Error acquiring the state lock",
                     detail=f"HTTP remote state already locked: ID=6\n{LOCKED}")],
         1, "the state is locked by somebody (lock 6)"),
    ],
)  # fmt: skip
def test_a_failure_says_what_to_do(errors: list[Diagnostic], code: int, said: str) -> None:
    assert explain("terraform apply", errors, exit_code=code).reason().startswith(said)
