# SPDX-License-Identifier: Apache-2.0
"""Nothing that the store declares is of one database only."""

import gc
import importlib
import pkgutil
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import ClauseElement, Select, Table, UpdateBase, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.schema import CreateIndex, CreateTable

from pipecd_controlplane import store
from pipecd_controlplane.store import schema
from pipecd_controlplane.store.deployments import LIST
from pipecd_controlplane.store.list_statements import SHAPES, build_listing
from pipecd_controlplane.store.statements import Compiled, InsertOf, Statements

DIALECTS = {
    "sqlite": (SQLiteDialect(paramstyle="qmark"), sqlite.insert),
    "postgresql": (
        PGDialect(paramstyle="numeric_dollar"),  # type: ignore[no-untyped-call] # SQLAlchemy's
        postgresql.insert,
    ),
}


def declared_statements() -> Iterator[tuple[str, ClauseElement]]:
    for module in pkgutil.iter_modules(store.__path__, f"{store.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Select | UpdateBase):
                    yield f"{module.name}.{name}", each


@pytest.mark.parametrize("name", DIALECTS)
def test_every_statement_compiles_for_each_dialect(name: str) -> None:
    dialect, _ = DIALECTS[name]
    found = list(declared_statements())

    assert len(found) > 40
    for _, statement in found:
        assert str(statement.compile(dialect=dialect))


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("table", schema.metadata.sorted_tables, ids=lambda table: str(table.name))
def test_every_table_can_be_made_and_added_to(name: str, table: Table) -> None:
    dialect, insert = DIALECTS[name]
    inserts: InsertOf = insert

    assert str(CreateTable(table).compile(dialect=dialect))
    for index in table.indexes:
        assert str(CreateIndex(index).compile(dialect=dialect))
    assert "ON CONFLICT DO NOTHING" in Statements(dialect, inserts).insert_if_absent(table).text


def test_texts_are_compared_byte_by_byte_in_postgresql() -> None:
    made = str(CreateTable(schema.deployment).compile(dialect=DIALECTS["postgresql"][0]))

    assert made.count('VARCHAR COLLATE "C"') == made.count("VARCHAR")


def test_a_constant_that_is_nothing_is_a_parameter_as_well() -> None:
    compiled = Compiled(select(bindparam("nothing", None)), DIALECTS["sqlite"][0])

    arguments: tuple[object, ...] = compiled.arguments({})
    assert arguments == (None,)


def test_statements_that_are_made_again_and_again_do_not_fill_the_memory() -> None:
    """A caller who may only read chooses the filters of lists, and each shape is a statement."""
    statements = Statements(*DIALECTS["sqlite"], most=20)
    seen: list[weakref.ref[Select[Any]]] = []
    for number in range(50):
        statement: Select[Any] = select(bindparam(f"name_{number}"))
        assert statements[statement] is statements[statement]
        seen.append(weakref.ref(statement))
    del statement
    gc.collect()

    assert sum(each() is not None for each in seen) <= 20


def test_lists_of_many_shapes_do_not_fill_the_memory() -> None:
    for number in range(SHAPES + 5):
        counts = (("application_id", 1 + number % 17), ("status", 1 + number // 17))
        build_listing(LIST, (counts, 0, False), "")

    assert build_listing.cache_info().currsize == SHAPES
