# SPDX-License-Identifier: Apache-2.0
"""Documents: the envelope, places of faults, unknown keys."""

import pytest

from pipecd_model.config import (
    ConfigFaultsError,
    load_application,
    load_control_plane,
    load_piped,
)

VERSION = "apiVersion: pipecd.dev/v1beta1\n"


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigFaultsError) as refused:
        load_application(text, file="app.pipecd.yaml")
    return str(refused.value).splitlines()


def warnings(text: str) -> list[str]:
    return [str(each) for each in load_application(text, file="app.pipecd.yaml").warnings]


def test_an_empty_file_is_told_what_belongs_into_it() -> None:
    expected = "app.pipecd.yaml:1:1: the document is empty (expected apiVersion, kind and spec)"

    assert faults("") == [expected]
    assert faults("# nothing yet\n") == [expected]


def test_a_document_must_be_a_mapping() -> None:
    assert faults("- a\n") == ["app.pipecd.yaml:1:1: the document must be a mapping, got a list"]
    assert faults("a:b\n")[0].startswith(
        "app.pipecd.yaml:1:1: the document must be a mapping, got a single value"
    )


def test_version_and_kind_are_needed_and_missed_together() -> None:
    assert faults("spec: {}\n") == [
        "app.pipecd.yaml:1:1: apiVersion: missing (write apiVersion: pipecd.dev/v1beta1)",
        (
            "app.pipecd.yaml:1:1: kind: missing (one of Application, KubernetesApp, TerraformApp,"
            " CloudRunApp, LambdaApp, ECSApp)"
        ),
    ]


def test_another_version_is_refused() -> None:
    assert faults("apiVersion: pipecd.dev/v1\nkind: Application\n") == [
        "app.pipecd.yaml:1:13: apiVersion: unknown version 'pipecd.dev/v1' (use pipecd.dev/v1beta1)"
    ]


def test_a_misspelt_kind_is_answered_with_the_nearest() -> None:
    assert faults(VERSION + "kind: Aplication\n") == [
        (
            "app.pipecd.yaml:2:7: kind: this is not of kind Application but 'Aplication'"
            " (did you mean 'Application'?)"
        ),
    ]


def test_another_kind_of_document_is_refused() -> None:
    with pytest.raises(ConfigFaultsError, match=r"not of kind Piped but 'Application'"):
        load_piped(VERSION + "kind: Application\n", file="f")
    with pytest.raises(ConfigFaultsError, match=r"not of kind ControlPlane but 'Piped'"):
        load_control_plane(VERSION + "kind: Piped\n", file="f")


def test_the_envelope_is_read_whatever_its_case() -> None:
    text = "APIversion: pipecd.dev/v1beta1\nKind: Application\nSpec: {name: x}\n"

    assert load_application(text, file="f").config.name == "x"


def test_a_misspelt_spec_is_told() -> None:
    found = warnings(VERSION + "kind: Application\nspecs: {name: x}\n")

    assert "app.pipecd.yaml:3:1: specs: unknown key (did you mean 'spec'?)" in found


def test_a_missing_spec_is_an_empty_one() -> None:
    assert load_application(VERSION + "kind: Application\n", file="f").config.name == ""


def test_an_unknown_key_loads_and_is_told_with_the_nearest_known_one() -> None:
    found = warnings(VERSION + "kind: Application\nspec:\n  plugins: {a: }\n  pipline: {}\n")

    assert found == [
        "app.pipecd.yaml:5:3: spec.pipline: unknown key, ignored (did you mean 'pipeline'?)"
    ]


def test_a_key_in_another_case_loads_and_its_spelling_is_told() -> None:
    text = VERSION + "kind: Application\nspec:\n  plugins: {a: }\n  Timeout: 1h\n"

    loaded = load_application(text, file="app.pipecd.yaml")

    assert loaded.config.timeout.total_seconds() == 3600
    assert [str(each) for each in loaded.warnings] == [
        "app.pipecd.yaml:5:3: spec.Timeout: elsewhere spelled 'timeout'"
    ]


def test_one_key_in_two_cases_is_refused_unless_they_agree() -> None:
    head = VERSION + "kind: Application\nspec:\n  plugins: {a: }\n"

    assert faults(head + "  name: a\n  Name: b\n") == [
        "app.pipecd.yaml:6:3: spec.Name: Name and name are the same setting (use only name)"
    ]
    assert load_application(head + "  name: a\n  Name: a\n", file="f").config.name == "a"


def test_all_faults_come_at_once_in_the_order_of_the_file() -> None:
    text = (
        VERSION
        + """kind: Application
spec:
  name: first
  timeout: soon
  pipeline:
    stages:
      - name: WAIT
        with: {duration: 1m}
      - desc: no name
        timeout: 1d
      - name: SCRIPT_RUN
        with: [run]
  planner: {autoRollback: "no"}
  name: again
"""
    )

    assert faults(text) == [
        "app.pipecd.yaml:5:12: spec.timeout: not a duration: 'soon' (e.g. 90s, 5m)",
        "app.pipecd.yaml:10:9: spec.pipeline.stages[1].name: missing",
        (
            "app.pipecd.yaml:11:18: spec.pipeline.stages[1].timeout: not a duration: '1d',"
            " unit 'd' is unknown (units are h, m, s, ms; a day is 24h)"
        ),
        "app.pipecd.yaml:13:15: spec.pipeline.stages[2].with: expected a mapping, got a list",
        (
            "app.pipecd.yaml:14:27: spec.planner.autoRollback: expected true or false,"
            " got the text 'no' (without quotes)"
        ),
        "app.pipecd.yaml:15:3: the key 'name' is given twice, first in line 4 (keep one of them)",
    ]


def test_a_fault_in_a_merged_value_points_at_the_place_that_merges_it() -> None:
    text = (
        VERSION
        + """kind: Application
spec:
  pipeline:
    stages:
      - &wait {name: WAIT, timeout: soon}
      - <<: *wait
        desc: again
"""
    )

    assert [fault.split(" ", 1)[0] for fault in faults(text)] == [
        "app.pipecd.yaml:6:37:",
        "app.pipecd.yaml:7:9:",
    ]
