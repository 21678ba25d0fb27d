# SPDX-License-Identifier: Apache-2.0
"""What every error of ours carries, and what its import costs."""

import subprocess
import sys

import pytest

from pipecd_model import errors
from pipecd_model.config import ConfigFaultsError, Fault

GRPC_CODES = {
    "ALREADY_EXISTS",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
}


def every_error() -> list[type[errors.PipecdError]]:
    found = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.PipecdError)
    ]
    return [*found, ConfigFaultsError]


@pytest.mark.parametrize("error", every_error())
def test_every_error_has_a_status_an_exit_code_and_a_line_in_the_drawing(
    error: type[errors.PipecdError],
) -> None:
    assert error.status in GRPC_CODES
    assert error.exit_code in {1, 2, 3, 4, 5}
    if error is not ConfigFaultsError:
        line = next(
            line for line in (errors.__doc__ or "").splitlines() if f"{error.__name__} " in line
        )
        assert "exit" not in line or line.endswith(f"{error.status:<19} exit {error.exit_code}")


def test_the_subject_goes_beside_the_message_and_not_into_it() -> None:
    error = errors.NotFoundError("no such deployment", hint="look at the list", deployment_id="d1")

    assert str(error) == "no such deployment"
    assert error.hint == "look at the list"
    assert error.subject == {"deployment_id": "d1"}


def test_a_misspelt_stage_is_answered_with_the_nearest_one() -> None:
    error = errors.NoPluginForStageError("SCRIPT_RUM", offered=["WAIT", "SCRIPT_RUN"])

    assert str(error) == "no plugin offers the stage 'SCRIPT_RUM'"
    assert error.hint == "did you mean 'SCRIPT_RUN'?"


def test_a_stage_like_no_other_is_answered_with_what_to_add() -> None:
    error = errors.NoPluginForStageError("K8S_SYNC", offered=["WAIT"])

    assert error.hint == "add its plugin to the piped config"


def test_an_ambiguous_stage_names_all_its_candidates() -> None:
    error = errors.AmbiguousStageError("K8S_SYNC", plugins=["theirs", "ours"])

    assert str(error) == "the stage 'K8S_SYNC' is offered by 'ours', 'theirs'"
    assert "plugin: ours" in error.hint


def test_all_faults_of_a_file_are_one_message_in_the_order_of_the_file() -> None:
    late = Fault(file="a.yaml", line=9, column=1, path="spec.b", message="wrong", hint="right it")
    early = Fault(file="a.yaml", line=2, column=3, path="spec.a", message="missing")

    error = ConfigFaultsError([late, early])

    assert str(error) == "a.yaml:2:3: spec.a: missing\na.yaml:9:1: spec.b: wrong (right it)"
    assert error.faults == (early, late)


@pytest.mark.parametrize("module", ["pipecd_model.errors", "pipecd_model.config.values"])
def test_light_modules_bring_neither_the_yaml_parser_nor_msgspec(module: str) -> None:
    """A command line imports them before it can say anything at all."""
    script = f"import sys, {module}; print([m for m in ('yaml', 'msgspec') if m in sys.modules])"

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "[]"


def test_decoding_alone_does_not_bring_the_yaml_parser() -> None:
    """Plugins decode their options from JSON."""
    script = (
        "import sys\nfrom pipecd_model.config import ConfigModel, Duration, decode\n"
        "print('yaml' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "False"


def test_a_stage_that_only_ends_alike_is_not_proposed() -> None:
    error = errors.NoPluginForStageError("K8S_SYNC", offered={"CUSTOM_SYNC", "WAIT"})

    assert error.hint == "add its plugin to the piped config"


def test_with_hint_has_the_hint_in_it() -> None:
    assert errors.ConfigError("no stage", hint="add one").with_hint() == "no stage (add one)"


def test_with_hint_fits_into_a_report() -> None:
    told = errors.ConfigError("x" * 1_000_000, hint="y" * 1_000_000).with_hint()

    assert len(told) == errors.LONGEST_REASON + 1
    assert told.endswith("…")
