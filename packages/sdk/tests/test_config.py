# SPDX-License-Identifier: Apache-2.0
"""Options from JSON, and their schema."""

from datetime import timedelta

import pytest

from pipecd_sdk import Duration, Report, Secret, StageConfig
from pipecd_sdk.config import OptionFaultsError, read

PATH = ("stages", 2, "with")


class Options(StageConfig):
    duration: Duration
    min_count: int = 1
    token: Secret | None = None
    names: tuple[str, ...] = ()

    def check(self, report: Report) -> None:
        if self.min_count > 10:
            report.fault("minCount", message="too many", hint="10 at most")


@pytest.mark.parametrize(
    ("written", "length"),
    [
        ('"90s"', timedelta(seconds=90)),
        ('"1h30m"', timedelta(minutes=90)),
        ("5e9", timedelta(seconds=5)),
    ],
)
def test_a_duration_is_gos_text_or_nanoseconds(written: str, length: timedelta) -> None:
    options, _ = read(Options, f'{{"duration": {written}}}'.encode(), path=PATH)

    assert options.duration == length


def test_keys_are_read_in_any_case() -> None:
    options, _ = read(Options, b'{"DURATION": "1s", "mincount": 3}', path=PATH)

    assert options.min_count == 3


def test_an_unknown_key_is_a_warning_with_the_nearest_known_one() -> None:
    _, warnings = read(Options, b'{"duration": "1s", "minCoutn": 3}', path=PATH)

    (warning,) = warnings
    assert warning.path == "stages[2].with.minCoutn"
    assert "minCount" in warning.hint


def test_what_piped_reads_under_with_is_not_unknown() -> None:
    _, warnings = read(Options, b'{"duration": "1s", "timeout": "5m", "skipOn": {}}', path=PATH)

    assert warnings == []


def test_an_option_of_the_stage_itself_may_be_called_timeout() -> None:
    class Own(StageConfig):
        timeout: int = 0

    options, _ = read(Own, b'{"timeout": 3}', path=PATH)

    assert options.timeout == 3


def test_a_rule_of_the_plugin_is_told_with_its_place_and_hint() -> None:
    with pytest.raises(OptionFaultsError) as refused:
        read(Options, b'{"duration": "1s", "minCount": 11}', path=PATH)

    assert str(refused.value) == "stages[2].with.minCount: too many (10 at most)"


@pytest.mark.parametrize("text", [b"{", b"\xff", b'{"duration": NaN x}'])
def test_what_is_no_json_is_a_fault_and_no_crash(text: bytes) -> None:
    with pytest.raises(OptionFaultsError, match=r"stages\[2\].with: not JSON"):
        read(Options, text, path=PATH)


@pytest.mark.parametrize("text", [b"[]", b'"text"', b"3"])
def test_options_must_be_a_mapping(text: bytes) -> None:
    with pytest.raises(OptionFaultsError, match="expected a mapping"):
        read(Options, text, path=PATH)
