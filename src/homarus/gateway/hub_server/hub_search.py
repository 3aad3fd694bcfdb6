"""Rank the skills of a registry for a query: names first, then words of the description."""

import re
from collections.abc import Iterable
from typing import Final

from homarus.gateway.hub_server.hub_folder import PublishedSkill

_WORD: Final = re.compile(r"\w+")
MAX_QUERY_CHARS: Final = 200


def rank_skills(query: str, skills: Iterable[PublishedSkill]) -> list[tuple[float, PublishedSkill]]:
    """Return the skills that match, with their scores, the best first."""
    wanted = list(dict.fromkeys(_WORD.findall(query[:MAX_QUERY_CHARS].casefold())))
    text = query.strip().casefold()
    found = [(score_skill(text, wanted, skill), skill) for skill in skills]
    hits = [(score, skill) for score, skill in found if score > 0]
    return sorted(hits, key=lambda hit: (-hit[0], hit[1].slug))


def score_skill(text: str, wanted: list[str], skill: PublishedSkill) -> float:
    """Return how well a skill matches: 0 if it does not."""
    latest = skill.latest
    if latest is None or not wanted:
        return 0.0
    name = str(latest.content.get("displayName", "")).casefold()
    names = {*_WORD.findall(name), *skill.slug.split("-"), skill.slug}
    topics = {word for topic in latest.content.get("topics", []) for word in _words(str(topic))}
    summary = set(_words(str(latest.content.get("summary", ""))))
    score = 5.0 if text == skill.slug else 0.0
    for word in wanted:
        if word in names:
            score += 2.0
        elif word in topics:
            score += 1.5
        elif any(each.startswith(word) for each in names):
            score += 1.0
        elif word in summary:
            score += 0.75
        elif len(word) > 3 and any(each.startswith(word) for each in summary):
            score += 0.25
    return round(score / len(wanted), 3)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
