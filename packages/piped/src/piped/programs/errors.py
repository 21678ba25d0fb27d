# SPDX-License-Identifier: Apache-2.0
"""Why there is no process of a program, split by what its caller does next.

ProgramError             it cannot be fetched, verified or started   try again, with backoff
└── ProgramSourceError   its source does not give it                 run the one in the cache
    └── SourceAwayError  its source is not there, for now            the same, else try again
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
