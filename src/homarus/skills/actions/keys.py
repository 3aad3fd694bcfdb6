"""The keys of a skill: which variables it may use, and their values for one call.

A skill gets what it declares (`requires.env`, `primaryEnv`) and nothing else. A value is that of
`skills.entries`, else that of the gateway's environment.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from homarus.config.redaction import add_known_secret
from homarus.config.schema import Config
from homarus.core.errors import ToolError
from homarus.skills.skill import Skill

_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
# Variables that change which program runs, or what is loaded into it: no skill has these as keys.
_LOADER_NAMES: Final = frozenset(
    {
        "PATH", "HOME", "SHELL", "IFS", "ENV", "BASH_ENV", "CDPATH", "TMPDIR", "USER", "LOGNAME",
        "NODE_OPTIONS", "NODE_PATH", "RUBYOPT", "RUBYLIB", "CLASSPATH", "EDITOR", "VISUAL", "PAGER",
        "BROWSER", "TERM",
    }
)  # fmt: skip
_LOADER_PREFIXES: Final = (
    "LD_", "DYLD_", "PYTHON", "PERL", "GIT_", "LC_", "JAVA_", "_JAVA", "HOMARUS_", "OPENCLAW_",
    "GLIBC_", "MALLOC_", "XDG_", "SSH_", "DBUS_", "SUDO_",
)  # fmt: skip


def declared_keys(skill: Skill) -> frozenset[str]:
    """Return the variables that the actions of a skill may use."""
    names = {*skill.requires.env, skill.metadata.primary_env}
    return frozenset(each for each in names if is_key_name(each))


def is_key_name(name: str) -> bool:
    """Return whether a variable can be a key, and not one that decides what runs."""
    is_loader = name in _LOADER_NAMES or name.startswith(_LOADER_PREFIXES)
    return bool(_NAME.fullmatch(name)) and not is_loader


def resolve_keys(
    skill: Skill, names: Iterable[str], config: Config, env: Mapping[str, str]
) -> dict[str, str]:
    """Return the values of keys, which are masked from now on. Raises ToolError without one."""
    entry = config.skills.entries.get(skill.key)
    found: dict[str, str] = {}
    for name in names:
        own = (entry.env.get(name) if entry else None) or ""
        if not own and entry and name == skill.metadata.primary_env:
            own = entry.api_key or ""
        value = (own or env.get(name, "")).strip()
        if not value:
            raise ToolError(
                f"the skill {skill.name} has no value for {name}",
                fix=f"set skills.entries.{skill.key}.env.{name}, or the variable {name}",
            )
        add_known_secret(value)
        found[name] = value
    return found
