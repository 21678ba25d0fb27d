# SPDX-License-Identifier: Apache-2.0
"""What Terraform says becomes lines for people, and its errors sentences that help."""

import json
from typing import Any

import pytest
from pipecd_plugin_terraform.masking import Mask
from pipecd_plugin_terraform.messages import Diagnostic, MessageReader, explain

from pipecd_sdk import Severity

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


@pytest.mark.parametrize(
    ("errors", "code", "said"),
    [
        ([], 1, "terraform apply failed with exit code 1 (the log says why)"),
        ([], -9, "terraform apply was ended by signal 9 (a lock of the state may be left"),
        ([Diagnostic(is_error=True, summary="Bad", detail="thing\nmore", address="a.b")], 1,
         "terraform apply failed: Bad (a.b): thing"),
        ([Diagnostic(is_error=True, summary="Saved plan is stale")], 1, "the plan is stale"),
        ([Diagnostic(is_error=True, summary="Error acquiring the state lock", detail="no info")],
         1, "terraform apply failed: Error acquiring the state lock: no info"),
        ([Diagnostic(is_error=True, summary="Error acquiring the state lock", detail=LOCKED)],
         1, "the state is locked by ann@desk since 2026-01-02 03:04:05 +0000 UTC for plan (lock"),
    ],
)  # fmt: skip
def test_a_failure_says_what_to_do(errors: list[Diagnostic], code: int, said: str) -> None:
    assert explain("terraform apply", errors, exit_code=code).reason().startswith(said)
