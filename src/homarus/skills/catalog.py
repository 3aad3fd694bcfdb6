"""The skills of each agent: found when first asked for, and again when files have changed."""

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from homarus.config.agent_settings import agent_entry, resolve_agent_settings
from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths, expand
from homarus.core.fast_dataclass import dataclass
from homarus.skills.find import FoundSkills, SkillFileCache, SkillProblem, SkillRoot, find_skills
from homarus.skills.gates import Eligibility, GateFacts, check_skill
from homarus.skills.listing import SkillListing, list_skills
from homarus.skills.plugin_folders import find_plugin_roots
from homarus.skills.requirements import make_bin_lookup
from homarus.skills.skill import Skill, SkillTier

BUNDLED_FOLDER: Final = Path(__file__).parent / "bundled"


@dataclass(frozen=True, slots=True)
class AgentSkills:
    """The skills that one agent has, at one moment.

    `allowed` are the names in `agents.list[].skills`; None: all. `version` is the same number as
    long as the files and the settings of skills are the same, also after a restart.
    """

    agent_id: str
    workspace: Path
    found: FoundSkills
    facts: GateFacts
    allowed: tuple[str, ...] | None
    home: Path
    version: int

    @property
    def skills(self) -> tuple[Skill, ...]:
        """All skills, also those that cannot be used here, by name."""
        return self.found.skills

    @property
    def problems(self) -> tuple[SkillProblem, ...]:
        return self.found.problems

    def find(self, name: str) -> Skill | None:
        """Return the skill with a name or a key."""
        named = (skill for skill in self.skills if skill.name == name)
        keyed = (skill for skill in self.skills if skill.key == name)
        return next(named, None) or next(keyed, None)

    def check(self, skill: Skill) -> Eligibility:
        """Return whether a skill can be used on this machine, and why not."""
        return check_skill(skill, self.facts)

    def is_allowed(self, skill: Skill) -> bool:
        """Return whether the agent's list has the skill, or there is no list."""
        return self.allowed is None or skill.name in self.allowed

    def eligible(self, allowed_names: Collection[str] | None = None) -> tuple[Skill, ...]:
        """Return the skills that can be used; of these, only the `allowed_names` if given."""
        return tuple(
            skill
            for skill in self.skills
            if self.is_allowed(skill)
            and (allowed_names is None or skill.name in allowed_names)
            and self.check(skill).is_eligible
        )

    def listing(self, allowed_names: Collection[str] | None = None) -> SkillListing:
        """Return the list for the prompt, of the skills that can be used."""
        return list_skills(self.eligible(allowed_names), self.facts.settings.limits, self.home)


class SkillCatalog:
    """Loads the skills of agents. A SKILL.md that is unchanged is read once."""

    def __init__(
        self,
        get_loaded: Callable[[], LoadedConfig],
        paths: Paths,
        bundled: Path = BUNDLED_FOLDER,
    ) -> None:
        self._loaded, self._paths, self._bundled = get_loaded, paths, bundled
        self._cache = SkillFileCache()

    @property
    def managed(self) -> Path:
        """The folder of the skills that are installed for all agents."""
        return self._paths.state / "skills"

    def load(self, agent_id: str) -> AgentSkills:
        """Return the skills of an agent. Raises UnknownNameError."""
        loaded, paths = self._loaded(), self._paths
        settings = resolve_agent_settings(loaded.config, paths, agent_id)
        roots = list(self.roots(settings.workspace))
        found = find_skills(
            (root for root in roots if isinstance(root, SkillRoot)),
            loaded.config.skills.limits,
            self._cache,
        )
        problems = (root for root in roots if isinstance(root, SkillProblem))
        found = replace(found, problems=(*problems, *found.problems))
        allowed = agent_entry(loaded.config, agent_id).skills
        return AgentSkills(
            agent_id=settings.id,
            workspace=settings.workspace,
            found=found,
            facts=GateFacts(
                has_bin=make_bin_lookup(loaded.env),
                env=loaded.env,
                config_tree=loaded.raw,
                settings=loaded.config.skills,
            ),
            allowed=allowed,
            home=paths.home,
            version=_version(found, repr(allowed), loaded),
        )

    def roots(self, workspace: Path) -> Iterator[SkillRoot | SkillProblem]:
        """Yield the folders in which an agent's skills are looked for, the lowest tier first.

        A plugin whose folders cannot be used is a problem.
        """
        paths, extra = self._paths, self._loaded().config.skills.load.extra_dirs
        for folder in extra:
            yield SkillRoot(SkillTier.EXTRA, expand(folder.strip(), paths.home))
        yield SkillRoot(SkillTier.BUNDLED, self._bundled)
        yield from find_plugin_roots(paths, self._loaded().raw)
        yield SkillRoot(SkillTier.MANAGED, self.managed)
        yield SkillRoot(SkillTier.PERSONAL, paths.home / ".agents" / "skills")
        yield SkillRoot(SkillTier.PROJECT, workspace / ".agents" / "skills")
        yield SkillRoot(SkillTier.WORKSPACE, workspace / "skills")


def _version(found: FoundSkills, allowed: str, loaded: LoadedConfig) -> int:
    """Return a number for files and settings, as large as JavaScript's numbers are exact."""
    digest = hashlib.blake2b(digest_size=6)
    for skill in found.skills:
        digest.update(f"{skill.file}\0{skill.stamp}\n".encode())
    digest.update(f"{allowed}\n{loaded.raw.get('skills')!r}".encode())
    return int.from_bytes(digest.digest())
