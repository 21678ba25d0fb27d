# SPDX-License-Identifier: Apache-2.0
"""Broken YAML: the author is told where and how to mend it."""

import pytest

from pipecd_model.config import ConfigFaultsError, load_application

HEAD = "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n"
LINE = HEAD.count("\n") + 1


def fault(body: str | bytes) -> str:
    head = HEAD if isinstance(body, str) else HEAD.encode()
    with pytest.raises(ConfigFaultsError) as refused:
        load_application(head + body, file="app.pipecd.yaml")  # type: ignore[operator]
    (found,) = refused.value.faults
    return str(found)


def test_quotes_inside_quotes_are_shown_with_the_way_to_write_them() -> None:
    """The script-run document itself has this line."""
    found = fault(
        "  pipeline:\n    stages:\n      - name: SCRIPT_RUN\n        runs:\n"
        """          - "curl --data '{"text":"deployed"}' $SLACK_WEBHOOK_URL"\n"""
    )

    assert found == (
        "app.pipecd.yaml:8:29: there is text after the closing quote"
        ' (a " inside "..." ends the text; write `- |` and put the text on the next line,'
        " indented further, without the outer quotes)"
    )


def test_the_way_that_is_shown_works() -> None:
    loaded = load_application(
        HEAD + "  pipeline:\n    stages:\n      - name: SCRIPT_RUN\n        runs:\n"
        "          - |\n"
        """            curl --data '{"text":"deployed"}' $SLACK_WEBHOOK_URL\n""",
        file="app.pipecd.yaml",
    )

    (stage,) = loaded.config.pipeline.stages
    assert stage.with_["runs"] == ["""curl --data '{"text":"deployed"}' $SLACK_WEBHOOK_URL\n"""]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("  name: 'it's'\n", "4:13: there is text after the closing quote (a ' inside '...'"),
        ('  name: "x\n  labels: {}\n', "4:9: a quote is opened here and never closed"),
        ("  labels: {a: b\n  name: c\n", "4:11: a bracket is opened here and never closed"),
        ("\tname: x\n", "4:1: a tab cannot indent (use spaces)"),
        ("  name: x\n\tlabels: {}\n", "5:1: a tab cannot indent (use spaces)"),
        ("  name: {{ .x }}\n", "4:10: a value starts with {{ (put quotes around"),
        ("  name: @x\n", "4:9: a value cannot start with '@' (put it in quotes)"),
        ("  name: `x`\n", "4:9: a value cannot start with '`' (put it in quotes)"),
        ("  name: *\n", "4:10: * starts an alias (put it in quotes"),
        ("  name: *x\n", "4:9: the alias *x is not defined (put it in quotes"),
        ("  name: a: b\n", "4:10: a colon stands where no key can be (put the value in quotes"),
        ("  name:x\n  labels: {}\n", "5:9: a colon stands where no key can be"),
        ("  a:\n    - b\n   - c\n", "6:4: this is not indented like what is above it (items"),
        ("  a: 1\n b: 2\n", "5:2: this is not indented like what is above it (keys"),
        ("  name: \x01\n", "4:9: the character U+0001 is not allowed (remove it)"),
        ("  name: &x [*x]\n", "4:13: the alias *x is inside what it stands for"),
        ("  name: " + "[" * 200 + "\n", "4:107: nested more than 100 levels deep"),
        ("  ? [a]\n  : b\n", "4:5: a key must be a text"),
    ],
)
def test_what_broke_is_said_with_its_place(body: str, told: str) -> None:
    assert fault(body).startswith(f"app.pipecd.yaml:{told}")


@pytest.mark.parametrize("body", [b"  name: \xff\n", "  name: \udcff\n"])
def test_what_is_not_utf_8_is_said(body: str | bytes) -> None:
    assert (
        fault(body)
        == f"app.pipecd.yaml:{LINE}:1: not UTF-8 at byte {len(HEAD) + 8} (save it as UTF-8)"
    )


def test_a_byte_order_mark_does_not_matter() -> None:
    text = "\ufeff" + HEAD + "  name: x\n"

    for given in (text, text.encode()):
        assert load_application(given, file="f").config.name == "x"
