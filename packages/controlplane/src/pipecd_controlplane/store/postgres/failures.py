# SPDX-License-Identifier: Apache-2.0
"""The errors of PostgreSQL by what is to be done about them."""

from typing import Final

import asyncpg

from pipecd_model.errors import ConfigError, StateError, UnavailableError

CONFLICTS: Final = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""The transaction was rolled back because of another one: it is run again."""

LOST: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,  # it is shut down, or has just been started
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby, until a failover is over
)
"""There is no answer just now; after a pause there may be one, perhaps of another server."""

FULL: Final = (asyncpg.DiskFullError, asyncpg.OutOfMemoryError)
BUSY: Final = (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError)

BadTextError: Final = asyncpg.CharacterNotInRepertoireError
"""A text with a NUL: protobuf allows it, PostgreSQL keeps none."""


def explain_lost(error: BaseException) -> UnavailableError:
    """Returns the error for a caller whose call found no database."""
    return UnavailableError(
        f"the database does not answer: {describe(error)}",
        hint="it goes on by itself when the database is back",
    )


def explain_refused(error: asyncpg.PostgresError) -> Exception:
    """Returns the error for a caller whose statement was refused."""
    if isinstance(error, BadTextError):
        return ConfigError("a text holds a NUL character, which the database cannot keep")
    if isinstance(error, asyncpg.ProgramLimitExceededError):
        return ConfigError("a text is too long for the database to find it by")
    if isinstance(error, FULL):
        return UnavailableError(
            f"cannot write to the database: {describe(error)}",
            hint="is its disk full? it goes on by itself when there is space",
        )
    if isinstance(error, BUSY):
        return UnavailableError(
            f"the database took too long: {describe(error)}", hint="try again later"
        )
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StateError(
            f"the user of the database may not do this: {describe(error)}",
            hint="give it the tables: it must own them",
        )
    return error


def describe(error: BaseException) -> str:
    """Returns an error in one line; the password of a URL is in none of them."""
    text = str(error).strip().partition("\n")[0]
    return text or type(error).__name__
