"""Rows of a database as plain tuples, and what they are asked for by."""

from dataclasses import field
from typing import Any

import apsw

from homarus.core.value import dataclass
from homarus.store.base import SEARCHED


def select(db: apsw.Connection, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every row of a query; the columns are what the schema says they are."""
    return db.execute(sql, values).fetchall()


@dataclass(slots=True)
class Conditions:
    """What stands after WHERE, all of it to hold, with the values of its question marks."""

    terms: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, term: str, *values: object) -> None:
        self.terms.append(term)
        self.values += values

    def search(self, text: str) -> None:
        """The text stands in a session's key, id or one of its names. Case is no matter."""
        if not text:
            return
        names = ["key", "session_id"]
        names += [f"coalesce(json_extract(json, '$.{name}'), '')" for name in SEARCHED]
        found = " OR ".join(f"instr(lower({name}), ?)" for name in names)
        self.add(f"({found})", *[_lower(text)] * len(names))

    def __str__(self) -> str:
        return " AND ".join(self.terms)


def _lower(text: str) -> str:
    """As SQLite does it: only the letters of ASCII have two cases."""
    return "".join(ch.lower() if ch.isascii() else ch for ch in text)
