"""The paths of the state directory, the config file, and what is below them."""

import re
from collections.abc import Mapping
from pathlib import Path

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass

_CONFIG = "openclaw.json"
_OWN_CONFIG = "homarus.json"
OPENCLAW_DATABASE = "state/openclaw.sqlite"  # in the state directory of OpenClaw 2026.9
# OpenClaw's former names; one is used when no newer one exists.
_LEGACY_STATES = (".clawdbot", ".moldbot", ".moltbot")
_LEGACY_CONFIGS = ("clawdbot.json", "moldbot.json", "moltbot.json")
_PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_AGENT_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


AGENT_MARK = "{agentId}"


@dataclass(frozen=True, slots=True)
class SessionStorePath:
    """The absolute path of `session.store`, in which `{agentId}` is replaced.

    Without that, it is the path of one `agent` only.
    """

    template: str
    agent: str = ""

    def index(self, agent: str) -> str | None:
        """Return the file of an agent's sessions; None if it is in the default place."""
        if self.agent and agent != self.agent:
            return None
        return self.template.replace(AGENT_MARK, _safe_agent_id(agent))

    def find_agents(self) -> set[str]:
        """Return the agents that have such a file."""
        if self.agent:
            return {self.agent}
        from glob import escape

        head, *rest = self.template.split(AGENT_MARK)
        same = re.compile(
            re.escape(head) + f"({_AGENT_ID.pattern})" + r"\1".join(map(re.escape, rest))
        )
        pattern = "*".join(map(escape, (head, *rest)))
        found = Path("/").glob(pattern.lstrip("/"))
        return {match[1] for path in found if (match := same.fullmatch(str(path)))}


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths that this program reads and writes, apart from configured workspaces."""

    home: Path
    state: Path
    config: Path
    cache: Path
    profile: str = ""
    session_store: SessionStorePath | None = None

    @classmethod
    def find(cls, env: Mapping[str, str], home: Path | None = None) -> "Paths":
        """Find the paths from the environment and the directories that exist."""
        home = home or Path(env.get("HOME") or Path.home())
        profile = _profile(env.get("OPENCLAW_PROFILE", ""))
        explicit = env.get("OPENCLAW_STATE_DIR", "").strip()
        state = expand(explicit, home) if explicit else _state(home, profile)
        named = env.get("OPENCLAW_CONFIG_PATH", "").strip()
        if Path(named).name == _OWN_CONFIG:
            raise UserError(
                f"OPENCLAW_CONFIG_PATH cannot be {named}: that file is for settings of our own",
                fix="give the config another name",
            )
        cache = env.get("XDG_CACHE_HOME", "").strip()
        return cls(
            home=home,
            state=state,
            config=expand(named, home) if named else _config(state),
            cache=expand(cache, home) if cache.startswith("/") else home / ".cache",
            profile=profile,
        )

    @property
    def own_config(self) -> Path:
        """The file of settings that OpenClaw does not know, next to the config."""
        return self.config.with_name(_OWN_CONFIG)

    @property
    def database(self) -> Path:
        return self.state / "state.sqlite"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def models_cache(self) -> Path:
        """Downloaded model weights: large, and safe to delete."""
        return self.cache / "homarus" / "models"

    def agent_dir(self, agent: str) -> Path:
        """Return the folder of an agent's credentials and model lists."""
        return self._agent(agent) / "agent"

    @property
    def gateway_file(self) -> Path:
        """The file in which a running gateway of this state directory says how to reach it."""
        return self.state / "gateway.json"

    def sessions_index(self, agent: str) -> Path:
        """Return the file with an agent's session list; its transcripts are next to it."""
        named = self.session_store.index(agent) if self.session_store else None
        return Path(named) if named else self._agent(agent) / "sessions" / "sessions.json"

    def sessions_dir(self, agent: str) -> Path:
        """Return the folder of an agent's session list and transcripts."""
        return self.sessions_index(agent).parent

    def default_workspace(self, agent: str, is_default: bool) -> Path:  # noqa: FBT001 - a fact about `agent`
        """Return the workspace of an agent whose config names none.

        The default workspace of a profile is in `~/.openclaw`, next to the one without a profile.
        An explicit state directory contains its workspace, so that it can be moved as one.
        """
        if not is_default:
            return self.state / f"workspace-{_safe_agent_id(agent)}"
        if self.profile and self.state == self.home / f".openclaw-{self.profile}":
            return self.home / ".openclaw" / f"workspace-{self.profile}"
        return self.state / "workspace"

    def _agent(self, agent: str) -> Path:
        return self.state / "agents" / _safe_agent_id(agent)


def is_sqlite_home(state: Path) -> bool:
    """Return whether OpenClaw 2026.9, which keeps its state in SQLite, has used a directory."""
    return (state / OPENCLAW_DATABASE).is_file()


def openclaw_files_dir(state: Path) -> Path:
    """Return the folder of files that we share with OpenClaw: credentials, devices, approvals.

    OpenClaw 2026.9 has these in SQLite, and refuses to start next to such files or imports and
    renames them; in its state directory, ours are therefore in a folder of their own.
    """
    return state / "homarus" if is_sqlite_home(state) else state


def expand(path: str, home: Path) -> Path:
    """Return an absolute path: `~` is `home`, a relative path starts at the current directory."""
    if path == "~" or path.startswith("~/"):
        return home / path[2:]
    return Path(path).absolute()


def shorten(path: Path, home: Path) -> str:
    """Format a path with `~` for the home directory."""
    if not path.is_relative_to(home):
        return str(path)
    return f"~/{path.relative_to(home)}" if path != home else "~"


def _profile(name: str) -> str:
    name = name.strip()
    if name in {"", "default"}:
        return ""
    if not _PROFILE.fullmatch(name):
        raise UserError(
            f"{name!r} is not a profile name", fix="use letters, digits, - and _, at most 64"
        )
    return name


def _state(home: Path, profile: str) -> Path:
    if profile:
        return home / f".openclaw-{profile}"
    newest = home / ".openclaw"
    if newest.exists():
        return newest
    legacy = (home / name for name in _LEGACY_STATES)
    return next((path for path in legacy if path.is_dir()), newest)


def _config(state: Path) -> Path:
    newest = state / _CONFIG
    if newest.exists():
        return newest
    legacy = (state / name for name in _LEGACY_CONFIGS)
    return next((path for path in legacy if path.is_file()), newest)


def _safe_agent_id(agent: str) -> str:
    """Return an agent id as a directory name. Raises UserError for one with a path in it."""
    if not _AGENT_ID.fullmatch(agent):
        raise UserError(
            f"{agent!r} is not an agent id", fix="use letters, digits, - and _, at most 64"
        )
    return agent
