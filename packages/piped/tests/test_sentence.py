# SPDX-License-Identifier: Apache-2.0
"""Errors as sentences."""

from pipecd_model.errors import ConfigError
from piped.sentence import LONGEST_REASON, sentence


def test_a_sentence_has_the_hint_in_it() -> None:
    assert sentence(ConfigError("no stage", hint="add one")) == "no stage (add one)"


def test_a_sentence_fits_into_a_report() -> None:
    told = sentence(ConfigError("x" * 1_000_000, hint="y" * 1_000_000))

    assert len(told) == LONGEST_REASON + 1
    assert told.endswith("…")
