"""The list of skills in a session's entry, stored apart from the session's row.

The row is rewritten twice in a turn; the list (`skillsSnapshot`) has many kilobytes and changes
hardly ever. So it is a record of its own, under the session's key, written with the row in one
transaction. Readers of the store and of `sessions.json` see one entry that has both. A row that an
earlier version wrote has the list in its text; it is split when it is next written.
"""

from collections.abc import Mapping
from typing import Final

from homarus.core.message import Json
from homarus.store.base import SKILLS_FIELD
from homarus.store.transcript_codec import dump_json, load_json

_END: Final = "\n}"  # of an indented text
# The text of the list, as a column of a query of `sessions`; a join would take longer.
SKILLS_COLUMN: Final = (
    "(SELECT json FROM records WHERE (team, user, kind, id)"  # noqa: S608 - our names
    f" = (sessions.team, sessions.user, '{SKILLS_FIELD}', sessions.key))"
)


def split_entry(entry: Mapping[str, Json]) -> tuple[dict[str, Json], Mapping[str, Json] | None]:
    """Return an entry without its list of skills, and the list; None if it has none."""
    rest, skills = dict(entry), entry.get(SKILLS_FIELD)
    if not isinstance(skills, Mapping):  # what is no list stays where it is
        return rest, None
    del rest[SKILLS_FIELD]
    return rest, skills


def encode_skills(skills: Mapping[str, Json] | None) -> str:
    """Return the text that is stored of a list; "" for none."""
    return "" if skills is None else dump_json(skills, pretty=True)


def join_entry(text: str, skills: str | None) -> dict[str, Json]:
    """Return the entry of a row's text and the text of its list; one in the row is newer."""
    entry: dict[str, Json] = load_json(text)
    return {SKILLS_FIELD: load_json(skills), **entry} if skills else entry


def join_text(text: str, skills: str | None) -> str:
    """Return the indented text of that entry, without reading it."""
    if not skills:
        return text
    if not text.endswith(_END) or f'"{SKILLS_FIELD}"' in text:
        return dump_json(join_entry(text, skills), pretty=True)
    indented = skills.replace("\n", "\n  ")
    return f'{text.removesuffix(_END)},\n  "{SKILLS_FIELD}": {indented}{_END}'
