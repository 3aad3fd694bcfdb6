"""Rows of a database as plain tuples."""

from typing import Any

import apsw


def select(db: apsw.Connection, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every row of a query; the columns are what the schema says they are."""
    return db.execute(sql, values).fetchall()
