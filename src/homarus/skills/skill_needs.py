"""What a skill asks for: programs, variables, settings, installs, tools, hosts and scripts.

It is read from the skill's files before anything is installed, and shown to the person who decides.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.skills.frontmatter import FrontmatterError, read_frontmatter
from homarus.skills.lint_rules import URL_HOST
from homarus.skills.skill import SKILL_FILE, Install, Skill, SkillTier, make_skill

SCRIPT_SUFFIXES: Final = frozenset(
    {".sh", ".bash", ".zsh", ".fish", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php",
     ".ps1", ".bat", ".cmd", ".lua", ".applescript", ".scpt", ".go", ".rs", ".swift"}
)  # fmt: skip
_MAX_HOSTS: Final = 40


@dataclass(frozen=True, slots=True)
class SkillNeeds:
    """What a skill asks for; `problem` says why it could not be offered."""

    name: str = ""
    description: str = ""
    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    os: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    installs: tuple[Install, ...] = ()
    actions: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    is_always: bool = False
    problem: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """Return the needs as titles and values, without those that are empty."""
        rows = (
            ("programs", ", ".join(self.bins)),
            ("variables", ", ".join(self.env)),
            ("settings", ", ".join(self.config)),
            ("systems", ", ".join(self.os)),
            ("tools", ", ".join(self.tools)),
            ("actions", ", ".join(self.actions)),
            ("installs", "; ".join(format_install(each) for each in self.installs)),
            ("scripts", ", ".join(self.scripts)),
            ("hosts", ", ".join(self.hosts)),
            ("always on", "its requirements are not checked" if self.is_always else ""),
        )
        return [(title, one_line(value, 600)) for title, value in rows if value]


def read_needs(files: Mapping[str, str], paths: Iterable[str]) -> SkillNeeds:
    """Return what a skill asks for, from the texts of its files and the paths of all files."""
    hosts = sorted({host.lower() for text in files.values() for host in URL_HOST.findall(text)})
    scripts = tuple(p for p in sorted(paths) if PurePosixPath(p).suffix.lower() in SCRIPT_SUFFIXES)
    shown = tuple(hosts[:_MAX_HOSTS])
    try:
        frontmatter = read_frontmatter(files.get(SKILL_FILE, ""))
        skill = make_skill(frontmatter, SkillTier.WORKSPACE, Path("skill", SKILL_FILE))
    except FrontmatterError as exc:
        return SkillNeeds(problem=str(exc), scripts=scripts, hosts=shown)
    return SkillNeeds(
        name=skill.name,
        description=one_line(skill.description, 400),
        bins=(*skill.requires.bins, *(" or ".join(skill.requires.any_bins),) * _has_any(skill)),
        env=tuple(dict.fromkeys(filter(None, (skill.metadata.primary_env, *skill.requires.env)))),
        config=skill.requires.config,
        os=skill.metadata.os,
        tools=(*skill.allowed_tools, *((skill.dispatch.tool,) if skill.dispatch else ())),
        installs=skill.metadata.install,
        actions=tuple(_action_names(skill.own.get("actions"))),
        scripts=scripts,
        hosts=shown,
        is_always=bool(skill.metadata.always),
    )


def _has_any(skill: Skill) -> int:
    return 1 if skill.requires.any_bins else 0


def _action_names(value: Json) -> list[str]:
    """Return the names of declared actions, in a list or a mapping."""
    if isinstance(value, dict):
        return [one_line(str(name), 60) for name in value]
    rows: list[Any] = value if isinstance(value, list) else []
    return [one_line(str(row.get("name", "?")), 60) for row in rows if isinstance(row, dict)]


def format_install(install: Install) -> str:
    """Return an install spec on one line."""
    source = install.formula or install.package or install.module or install.url or install.id
    return f"{install.kind} {one_line(source, 120)}"
