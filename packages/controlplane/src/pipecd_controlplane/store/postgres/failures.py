# SPDX-License-Identifier: Apache-2.0
"""The errors of PostgreSQL by what is to be done about them.

At run time the caller gets UNAVAILABLE, and tries again: none of them is its fault, and all of them
end without a restart. At the start the same sentence goes to the operator.
"""

from dataclasses import dataclass
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
    # It is shut down, or has just been started.
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby, until a failover is over
)
"""There is no answer just now; after a pause there may be one, perhaps of another server."""


class UnreadablePasswordError(OSError):
    """The file with the password cannot be read, perhaps only until it is replaced."""


BadTextError: Final = asyncpg.CharacterNotInRepertoireError
"""A text with a NUL; `texts` keeps them, so this one is of a statement of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseTrouble:
    """One kind of failure, in words."""

    errors: tuple[type[BaseException], ...]
    sentence: str
    hint: str


TROUBLES: Final = (
    DatabaseTrouble(
        errors=(asyncpg.TooManyConnectionsError,),
        sentence="the database takes no more connections",
        hint="raise max_connections of its server, or the limit of its user or database",
    ),
    DatabaseTrouble(
        errors=(asyncpg.ReadOnlySQLTransactionError,),
        sentence="the database may only be read",
        hint="is it a standby, or is default_transaction_read_only set? it goes on by itself"
        " when it may be written",
    ),
    DatabaseTrouble(
        errors=(asyncpg.InvalidAuthorizationSpecificationError,),
        sentence="the database refuses the user",
        hint="check user, password and pg_hba.conf",
    ),
    DatabaseTrouble(
        errors=(asyncpg.InvalidCatalogNameError, asyncpg.DatabaseDroppedError),
        sentence="there is no such database",
        hint="create it, with ENCODING 'UTF8', and an owner for pipecd",
    ),
    DatabaseTrouble(
        errors=(asyncpg.InsufficientPrivilegeError,),
        sentence="the user of the database may not do this",
        hint="it must own the tables, or have SELECT, INSERT, UPDATE and DELETE on all of them;"
        " to make them it needs CREATE on the schema",
    ),
    DatabaseTrouble(
        errors=(asyncpg.DiskFullError, asyncpg.OutOfMemoryError),
        sentence="cannot write to the database",
        hint="is its disk full? it goes on by itself when there is space",
    ),
    DatabaseTrouble(
        errors=(asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError),
        sentence="the database took too long",
        hint="another session may hold a lock, or its disk is slow; try again later",
    ),
    DatabaseTrouble(
        errors=(
            asyncpg.UndefinedTableError,
            asyncpg.UndefinedColumnError,
            asyncpg.InvalidSchemaNameError,
        ),
        sentence="the tables of the database are not those of this pipecd",
        hint="were they dropped or restored while it ran? start it again when they are there",
    ),
    DatabaseTrouble(
        errors=(asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError),
        sentence="the database has lost a prepared statement",
        hint="a pooler before it must give each client a session of its own",
    ),
    DatabaseTrouble(
        errors=(asyncpg.InsufficientResourcesError,),
        sentence="the server of the database lacks something",
        hint="see its log; it goes on by itself when the cause is gone",
    ),
    DatabaseTrouble(
        errors=(asyncpg.PostgresSystemError, asyncpg.InternalServerError),
        sentence="the server of the database has failed",
        hint="see its log and its disk; it goes on by itself when the cause is gone",
    ),
    DatabaseTrouble(
        errors=(UnreadablePasswordError,),
        sentence="cannot read the password of the database",
        hint="bring back the file that passwordFile names; it goes on by itself then",
    ),
    DatabaseTrouble(
        errors=LOST,
        sentence="the database does not answer",
        hint="is it running, and reachable from here? it goes on by itself when it is back",
    ),
)
"""The first one that fits counts."""


def explain_lost(error: BaseException) -> UnavailableError:
    """Returns the error for a caller whose call found no database."""
    trouble = find_trouble(error) or TROUBLES[-1]
    return UnavailableError(f"{trouble.sentence}: {describe(error)}", hint=trouble.hint)


def explain_refused(error: BaseException) -> Exception:
    """Returns the error for a caller whose statement was refused; `error` itself where it is a bug.

    UnavailableError is the database's fault, ConfigError the caller's.
    """
    if isinstance(error, BadTextError):
        return ConfigError("a text holds a NUL character, which the database cannot keep")
    if isinstance(error, asyncpg.ProgramLimitExceededError):
        return ConfigError("a text is too long for the database to find it by")
    if find_trouble(error) is not None:
        return explain_lost(error)
    return error if isinstance(error, Exception) else RuntimeError(describe(error))


def explain_at_start(error: BaseException) -> StateError:
    """Returns the error for the operator who starts a server on this database."""
    trouble = find_trouble(error)
    if trouble is None:
        return StateError(
            f"the database cannot be used: {describe(error)}", hint="see the log of its server"
        )
    return StateError(f"{trouble.sentence}: {describe(error)}", hint=trouble.hint)


def find_trouble(error: BaseException) -> DatabaseTrouble | None:
    """Returns what is wrong with the database; None when it may be a bug of ours."""
    return next((each for each in TROUBLES if isinstance(error, each.errors)), None)


def describe(error: BaseException) -> str:
    """Returns an error in one line; the password of a URL is in none of them."""
    text = str(error).strip().partition("\n")[0]
    return text or type(error).__name__
