# SPDX-License-Identifier: Apache-2.0
"""Events that are too large are found by whoever writes them, before the control plane refuses."""

import pytest

from pipecd_model.config import load_application
from pipecd_model.errors import PipecdError
from pipecd_model.event_limits import (
    DATA_CHARACTERS,
    LABEL_CHARACTERS,
    LABELS,
    NAME_CHARACTERS,
    list_event_faults,
)

MANY = {f"k{number}": "v" for number in range(LABELS + 1)}


@pytest.mark.parametrize(
    ("name", "data", "labels", "fields"),
    [
        ("n" * NAME_CHARACTERS, "d" * DATA_CHARACTERS, {"k" * LABEL_CHARACTERS: "v"}, []),
        ("n" * (NAME_CHARACTERS + 1), "d", {}, ["name"]),
        ("n", "d" * (DATA_CHARACTERS + 1), {}, ["data"]),
        ("n", "d", MANY, ["labels"]),
        ("n", "d", {"k" * (LABEL_CHARACTERS + 1): "v" * (LABEL_CHARACTERS + 1)}, ["labels"] * 2),
    ],
)
def test_what_is_too_large_is_named(
    name: str, data: str, labels: dict[str, str], fields: list[str]
) -> None:
    assert [field for field, _ in list_event_faults(name, data, labels)] == fields


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (f"{{name: {'n' * 501}}}", "has 501 characters, at most 500"),
        (f"{{name: a, data: {'d' * 65537}}}", "has 65537 characters, at most 65536"),
        (f"{{name: a, labels: {{k: {'v' * 501}}}}}", "the value of 'k' has 501 characters"),
    ],
)
def test_an_application_file_with_a_larger_one_is_refused(event: str, said: str) -> None:
    file = "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n  name: web\n"

    with pytest.raises(PipecdError) as caught:
        load_application(f"{file}  postSync: {{events: [{event}]}}\n", file="app.pipecd.yaml")

    assert said in str(caught.value)
    assert "spec.postSync.events[0]" in str(caught.value)


def test_values_that_are_named_may_be_short() -> None:
    """What stands for a value is not counted."""
    file = "apiVersion: pipecd.dev/v1beta1\nkind: Application\nspec:\n  name: web\n"
    data = "d" * (DATA_CHARACTERS - 1) + "{{ .commit }}"

    text = f"{file}  postSync: {{events: [{{name: a, data: '{data}'}}]}}\n"

    assert load_application(text, file="app.pipecd.yaml").config.post_sync is not None
