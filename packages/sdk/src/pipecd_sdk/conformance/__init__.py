# SPDX-License-Identifier: Apache-2.0
"""Tests whether an executable, in any language, keeps the promises of a plugin on the wire.

`pipectl plugin test -- COMMAND …` runs it. The cases are data, in `cases/`: `case.py` reads
them, `session.py` carries out their steps on a real process, `checks.py` judges the responses.
"""

from pipecd_sdk.conformance.case import Case, CaseFileError, load_cases
from pipecd_sdk.conformance.profile import Profile, ProfileError, StageProfile, load_profile
from pipecd_sdk.conformance.run import CaseOutcome, CaseVerdict, judge_plugin

__all__ = [
    "Case",
    "CaseFileError",
    "CaseOutcome",
    "CaseVerdict",
    "Profile",
    "ProfileError",
    "StageProfile",
    "judge_plugin",
    "load_cases",
    "load_profile",
]
