"""Describe skills for people and clients: the payloads of `skills.status` and of `--json`.

The keys are OpenClaw's. `reasons`, `problems` and what the AgentSkills format has are our own.
"""

from collections.abc import Iterable, Iterator

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.skills.actions.action_files import find_action_problems, load_actions
from homarus.skills.actions.definition import describe_action, make_action_name
from homarus.skills.catalog import AgentSkills
from homarus.skills.find import SkillProblem
from homarus.skills.gates import Eligibility
from homarus.skills.requirements import Requirements, is_set
from homarus.skills.skill import Install, Skill, SkillTier


@dataclass(frozen=True, slots=True)
class SkillStatus:
    """A skill and whether it can be used; `is_allowed` is false if its agent's list omits it."""

    skill: Skill
    eligibility: Eligibility
    is_allowed: bool

    @property
    def is_usable(self) -> bool:
        return self.is_allowed and self.eligibility.is_eligible

    @property
    def state(self) -> str:
        """Whether it is ready, or the first reason why not, in a word."""
        if self.is_usable:
            return "ready"
        found = self.eligibility
        if found.is_disabled:
            return "disabled"
        return "blocked" if found.is_blocked or not self.is_allowed else "missing"


def list_statuses(found: AgentSkills) -> list[SkillStatus]:
    """Return the status of each skill of an agent."""
    return [
        SkillStatus(skill, found.check(skill), found.is_allowed(skill)) for skill in found.skills
    ]


def list_installs(skill: Skill, platform: str) -> Iterator[tuple[str, Install]]:
    """Yield the ways to install what a skill requires on this system, each with its id."""
    for index, install in enumerate(skill.metadata.install):
        if not install.os or platform in install.os:
            yield install.id or f"{install.kind}-{index}", install


def label_install(install: Install) -> str:
    """Return the label of one way to install; the author's, if there is one."""
    source = install.formula or install.package or install.module or install.url
    return install.label or f"Install {source or ', '.join(install.bins)} ({install.kind})"


def encode_status(found: AgentSkills, managed: str) -> dict[str, Json]:
    """Return the payload of `skills.status`."""
    return {
        "workspaceDir": str(found.workspace),
        "managedSkillsDir": managed,
        "skills": [encode_skill(found, status) for status in list_statuses(found)],
        "problems": encode_problems(found),
    }


def encode_skill(found: AgentSkills, status: SkillStatus) -> dict[str, Json]:
    """Return all that is known of a skill."""
    skill, checked = status.skill, status.eligibility
    payload = encode_summary(status)
    payload |= {
        "filePath": str(skill.file),
        "baseDir": str(skill.folder),
        "skillKey": skill.key,
        "always": bool(skill.metadata.always),
        "requirements": encode_requirements(checked.requirements),
        "configChecks": [
            {"path": path, "satisfied": is_set(path, found.facts.config_tree)}
            for path in checked.requirements.config
        ],
        "install": encode_installs(skill, found.facts.platform),
        "userInvocable": skill.invocation.by_user,
        "modelInvocable": skill.invocation.by_model,
        "allowRemote": skill.invocation.allows_remote,
    }
    if skill.dispatch:
        payload["command"] = {"tool": skill.dispatch.tool, "argMode": skill.dispatch.arg_mode}
    texts = {"license": skill.license, "compatibility": skill.compatibility}
    payload |= {key: text for key, text in texts.items() if text}
    if actions := encode_actions(skill):
        payload["actions"] = actions
    if skill.allowed_tools:
        payload["allowedTools"] = list(skill.allowed_tools)
    return payload


def encode_summary(status: SkillStatus) -> dict[str, Json]:
    """Return what `skills list --json` shows of a skill."""
    skill, checked = status.skill, status.eligibility
    payload: dict[str, Json] = {
        "name": skill.name,
        "description": skill.description,
        "eligible": checked.is_eligible,
        "disabled": checked.is_disabled,
        "blockedByAllowlist": checked.is_blocked,
        "source": skill.tier.source,
        "bundled": skill.tier is SkillTier.BUNDLED,
        "missing": encode_requirements(checked.missing),
        "reasons": [
            {"gate": each.gate, "message": each.message, "fix": each.fix}
            for each in checked.reasons
        ],
    }
    optional = {
        "emoji": skill.metadata.emoji,
        "primaryEnv": skill.metadata.primary_env,
        "homepage": skill.homepage,
    }
    return payload | {key: text for key, text in optional.items() if text}


def encode_requirements(found: Requirements) -> dict[str, Json]:
    """Return requirements by OpenClaw's names of their kinds."""
    return {
        "bins": list(found.bins),
        "anyBins": list(found.any_bins),
        "env": list(found.env),
        "config": list(found.config),
        "os": list(found.os),
    }


def encode_installs(skill: Skill, platform: str) -> list[Json]:
    """Return the ways to install what a skill requires; `id` is what `skills.install` is given."""
    return [
        {"id": key, "kind": each.kind, "label": label_install(each), "bins": list(each.bins)}
        for key, each in list_installs(skill, platform)
    ]


def list_problems(found: AgentSkills) -> list[SkillProblem]:
    """Return the files that are not used as skills, and what is wrong with actions of others."""
    return [*found.problems, *find_action_problems(found.skills)]


def encode_actions(skill: Skill) -> list[Json]:
    """Return the actions of a skill, with the names of their tools."""
    return [
        {
            "name": each.name,
            "tool": make_action_name(skill.name, each.name),
            "description": each.description,
            "parameters": dict(each.parameters),
            "effects": sorted(each.effects),
            "does": describe_action(each),
        }
        for each in load_actions(skill).actions
    ]


def encode_problems(found: AgentSkills) -> list[Json]:
    """Return the files and folders that are not used as skills, each with the reason."""
    return [
        {
            "path": str(problem.path),
            "source": problem.tier.source,
            "message": problem.message,
            "fix": problem.fix,
        }
        for problem in list_problems(found)
    ]


def list_bins(skills: Iterable[Skill]) -> list[str]:
    """Return the programs that skills use, as `skills.bins` lists them."""
    names = {
        name
        for skill in skills
        for group in (
            skill.requires.bins,
            skill.requires.any_bins,
            *(install.bins for install in skill.metadata.install),
        )
        for name in group
    }
    return sorted(names)
