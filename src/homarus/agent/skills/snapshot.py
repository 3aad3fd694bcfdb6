"""The skills of a session as its entry has them: the list in its prompt does not change.

The snapshot is taken when a session starts, so that the start of its prompt stays the same bytes
while files change. It is taken again when a setting has changed that says which skills the session
may have: a setting that restricts holds at once.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from homarus.agent.prompt.facts import SkillBlock
from homarus.config.schema import Config
from homarus.core.message import Json
from homarus.core.text import unescape_markup
from homarus.store.base import SKILLS_FIELD

if TYPE_CHECKING:  # imported by the first session that has skills
    from homarus.skills.listing import SkillListing
    from homarus.skills.skill import Skill

FIELD: Final = SKILLS_FIELD
_START: Final = "<available_skills>\n"
_END: Final = "\n</available_skills>"
_BLOCK: Final = re.compile(
    r"  <skill>\n    <name>([^\n]*)</name>\n.*?\n  </skill>"
    r"|  <skill><name>([^\n]*?)</name>[^\n]*</skill>"
    r"|  <bundled>[^\n]*</bundled>",
    re.DOTALL,
)
# OpenClaw's versions are times in milliseconds: a smaller one lets it take its own snapshot.
_MAX_VERSION: Final = 1 << 31


def skill_restrictions(
    config: Config, names: Collection[str] | None, *, is_sandboxed: bool
) -> dict[str, Json]:
    """Return the settings that decide which skills a session may have, as a snapshot stores them.

    `names` are those that the agent and the chat allow; None: all. In a sandbox paths are written
    in full, because the home there is another one.
    """
    entries, bundled = config.skills.entries, config.skills.allow_bundled
    disabled = sorted(key for key, entry in entries.items() if entry.enabled is False)
    return {
        **({} if names is None else {"skillFilter": sorted(names)}),
        **({"disabled": [*disabled]} if disabled else {}),
        **({"allowBundled": sorted(bundled)} if bundled else {}),
        **({"sandboxed": True} if is_sandboxed else {}),
    }


def make_snapshot(
    listing: "SkillListing",
    offered: Iterable["Skill"],
    restrictions: Mapping[str, Json],
    version: int,
) -> dict[str, Json]:
    """Return what a session's entry stores: the list, and the skills that may be used."""
    text = listing.text
    return {
        "prompt": f"{_START}{text}{_END}" if text else "",
        "skills": [_describe(skill) for skill in offered],
        **restrictions,
        "version": version % _MAX_VERSION,
    }


def _describe(skill: "Skill") -> dict[str, Json]:
    primary = skill.metadata.primary_env
    return {
        "name": skill.name,
        **({"primaryEnv": primary} if primary else {}),
        **({} if skill.invocation.allows_remote else {"allowRemote": False}),
    }


def read_snapshot(
    entry: Mapping[str, Json], restrictions: Mapping[str, Json], *, is_owner: bool
) -> tuple[SkillBlock, ...] | None:
    """Return the list of a session's entry; None when it has none, or its settings have changed.

    `is_owner`: the conversation is the owner's. Another one does not get the skills that are not
    for remote senders.
    """
    stored = entry.get(FIELD)
    if not isinstance(stored, Mapping):
        return None
    if {name: stored.get(name) for name in _RESTRICTIONS if name in stored} != restrictions:
        return None
    prompt = stored.get("prompt")
    blocks = parse_listing(prompt) if isinstance(prompt, str) else None
    if blocks is None or is_owner:
        return blocks
    local = set(_local_names(stored.get("skills")))
    return tuple(block for block in blocks if block.name not in local) if local else blocks


_RESTRICTIONS: Final = ("skillFilter", "disabled", "allowBundled", "sandboxed")


@lru_cache(64)
def parse_listing(prompt: str) -> tuple[SkillBlock, ...] | None:
    """Return the entries of a list; None for one of another program, which has another form."""
    if not prompt:
        return ()
    if not (prompt.startswith(_START) and prompt.endswith(_END)):
        return None
    inner = prompt[len(_START) : -len(_END)]
    blocks = tuple(
        SkillBlock(unescape_markup(found[1] or found[2] or ""), found[0])
        for found in _BLOCK.finditer(inner)
    )
    return blocks if "\n".join(block.text for block in blocks) == inner else None


def _local_names(skills: Json) -> Sequence[str]:
    rows = skills if isinstance(skills, list) else []
    return [
        str(row.get("name"))
        for row in rows
        if isinstance(row, Mapping) and row.get("allowRemote") is False
    ]
