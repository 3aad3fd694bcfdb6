"""Run SQL queries and build their conditions."""

from dataclasses import field
from typing import Any

import apsw

from homarus.core.fast_dataclass import dataclass
from homarus.store.base import SEARCHED


def select(db: apsw.Connection, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return every row of a query as a plain tuple."""
    return db.execute(sql, values).fetchall()


@dataclass(slots=True)
class WhereClause:
    """The conditions of a WHERE clause, joined by AND, and the values of its parameters."""

    terms: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, term: str, *values: object) -> None:
        self.terms.append(term)
        self.values += values

    def search(self, text: str) -> None:
        """Require that the text occurs in a session's key, id or one of its names, in any case."""
        if not text:
            return
        names = ["key", "session_id"]
        names += [f"coalesce(json_extract(json, '$.{name}'), '')" for name in SEARCHED]
        found = " OR ".join(f"instr(lower({name}), ?)" for name in names)
        self.add(f"({found})", *[_lower(text)] * len(names))

    def __str__(self) -> str:
        return " AND ".join(self.terms)


def _lower(text: str) -> str:
    """Return the text in lower case as SQLite does it: only ASCII letters have two cases."""
    return "".join(ch.lower() if ch.isascii() else ch for ch in text)
