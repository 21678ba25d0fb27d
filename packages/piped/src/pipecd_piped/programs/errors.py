# SPDX-License-Identifier: Apache-2.0
"""The errors of fetching and starting a program, by what the caller does next.

ProgramError             it cannot be fetched, verified or started   retry with backoff
└── ProgramSourceError   its source does not deliver it              run the cached one
    └── SourceAwayError  its source is unavailable for now           run the cached one, or retry
"""

from pipecd_model.errors import PipecdError


class ProgramError(PipecdError):
    """A program cannot be fetched, verified, started or cleaned up after."""

    status = "FAILED_PRECONDITION"


class ProgramSourceError(ProgramError):
    """The source of a program does not deliver it."""


class SourceAwayError(ProgramSourceError):
    """The source of a program is unavailable; a retry may succeed."""

    status = "UNAVAILABLE"
