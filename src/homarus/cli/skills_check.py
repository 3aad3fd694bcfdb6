"""The checks of `homarus doctor` about skills: files with mistakes, and names of no skill."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from homarus.config.agent_settings import agent_entry, agent_ids
from homarus.config.load import ConfigExamination, LoadedConfig
from homarus.config.paths import Paths, shorten
from homarus.config.schema import Config
from homarus.core.text import closest_names, one_line

# What it is about, the state, the text and the fix, as of a finding of doctor.
SkillFinding: TypeAlias = tuple[str, Literal["ok", "note"], str, str]


def check_skills(paths: Paths, examined: ConfigExamination) -> Iterator[SkillFinding]:
    """Yield the files that are not used as skills, and settings that name no skill."""
    from homarus.skills.catalog import SkillCatalog

    config = examined.config
    if config is None:
        return
    loaded = LoadedConfig(config, examined.raw, "", "", exists=examined.exists, env=examined.env)
    catalog = SkillCatalog(lambda: loaded, paths)
    found = {agent: catalog.load(agent) for agent in agent_ids(config)}
    problems = dict.fromkeys(problem for each in found.values() for problem in each.problems)
    for problem in problems:
        text = f"{shorten(problem.path, paths.home)}: {problem.message}"
        yield "skills", "note", one_line(text, 300), problem.fix
    known = {
        agent: {name for skill in each.skills for name in (skill.name, skill.key)}
        for agent, each in found.items()
    }
    unknown = list(_find_unknown(config, known))
    yield from unknown
    if not problems and not unknown:
        count = len({skill.file for each in found.values() for skill in each.skills})
        yield "skills", "ok", f"{count} skills are found", ""


def _find_unknown(config: Config, known: dict[str, set[str]]) -> Iterator[SkillFinding]:
    names = set().union(*known.values())
    settings = config.skills
    named = [
        *(("skills.entries", name, names) for name in settings.entries),
        *(("skills.allowBundled", name, names) for name in settings.allow_bundled),
        *(
            (f"skills of the agent {agent}", name, known[agent])
            for agent in known
            for name in agent_entry(config, agent).skills or ()
        ),
    ]
    for place, name, existing in named:
        if name not in existing:
            near = closest_names(name, sorted(existing))
            fix = f"did you mean {' or '.join(near)}?" if near else "homarus skills list"
            yield "skills", "note", f"{place}: there is no skill {one_line(name, 60)}", fix
