# SPDX-License-Identifier: Apache-2.0
"""The differences between one version of the schema and the next, as data for every driver.

A new table or index needs no entry: missing ones are created after the steps. An entry is never
changed once it was released, so it names columns itself and does not refer to `schema`. Each driver
decides how to apply a step, and how to fill rows of older versions.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedColumn:
    """A column that tables of older versions lack."""

    table: str
    name: str
    type: str
    default: int | str = 0
    """The value for rows that exist already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """The step to one version from the one before."""

    version: int
    """The version that it migrates to."""
    columns: tuple[AddedColumn, ...] = ()
    dropped_indexes: tuple[str, ...] = ()


def _numbers(table: str, *names: str, default: int = 0) -> tuple[AddedColumn, ...]:
    return tuple(
        AddedColumn(table=table, name=name, type="BIGINT", default=default) for name in names
    )


def _texts(table: str, *names: str) -> tuple[AddedColumn, ...]:
    return tuple(AddedColumn(table=table, name=name, type="VARCHAR", default="") for name in names)


MIGRATIONS: Final = (
    # Lists are found by more: labels, time of change, chain, trace.
    Migration(
        version=3,
        columns=(
            *_numbers("application", "deleted", "plugin_based", "sync_status", "updated_at"),
            *_numbers("deployment", "updated_at", "completed_at"),
            *_texts("deployment", "chain_id", "trace_commit_hash"),
        ),
        dropped_indexes=("deployment_of_application", "deployment_of_project"),
    ),
    # Chunks of stage logs are found by both ends. Those that are there may hold any index.
    Migration(
        version=4,
        columns=(
            *_numbers("stage_log_chunk", "first_index", default=-(2**63)),
            *_numbers("stage_log_chunk", "late", default=1),
        ),
    ),
    # Stage logs have a limit; what they held before does not count.
    Migration(version=6, columns=_numbers("stage_log", "bytes")),
    # What is read, changed and written is compared by its version.
    Migration(
        version=7,
        columns=tuple(
            AddedColumn(table=table, name="version", type="INTEGER", default=1)
            for table in ("project", "session", "live_state", "analysis_result")
        ),
    ),
    # Lines of stage logs have numbers.
    Migration(
        version=9,
        columns=(*_numbers("stage_log", "lines"), *_numbers("stage_log_chunk", "first_line")),
    ),
    # Logs that are complete are sealed as objects.
    Migration(version=10, columns=_numbers("stage_log", "sealed", "sealed_bytes")),
    # Large values are sealed as objects. What was updated lately has an index of its own; that of
    # all deployments is leaner.
    Migration(
        version=11,
        columns=tuple(
            column
            for table in ("shared_object", "live_state")
            for column in (
                *_texts(table, "object_key"),
                *_numbers(table, "size"),
                *_texts(table, "sha256"),
            )
        ),
        dropped_indexes=("deployment_by_time",),
    ),
)
"""In their order."""
