"""Where things are: the state directory, the config file, and what lies under them."""

import re
from collections.abc import Mapping
from pathlib import Path

from homarus.core.errors import UserError
from homarus.core.value import dataclass

_CONFIG = "openclaw.json"
# Names the original had before; each is read when nothing newer is there.
_LEGACY_STATES = (".clawdbot", ".moldbot", ".moltbot")
_LEGACY_CONFIGS = ("clawdbot.json", "moldbot.json", "moltbot.json")
_PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_AGENT_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Paths:
    """Every place this program reads or writes, apart from the workspaces a config names."""

    home: Path
    state: Path
    config: Path
    cache: Path
    profile: str = ""

    @classmethod
    def find(cls, env: Mapping[str, str], home: Path | None = None) -> "Paths":
        """Look at the environment and at which directories exist."""
        home = home or Path(env.get("HOME") or Path.home())
        profile = _profile(env.get("OPENCLAW_PROFILE", ""))
        explicit = env.get("OPENCLAW_STATE_DIR", "").strip()
        state = expand(explicit, home) if explicit else _state(home, profile)
        named = env.get("OPENCLAW_CONFIG_PATH", "").strip()
        cache = env.get("XDG_CACHE_HOME", "").strip()
        return cls(
            home=home,
            state=state,
            config=expand(named, home) if named else _config(state),
            cache=expand(cache, home) if cache.startswith("/") else home / ".cache",
            profile=profile,
        )

    @property
    def database(self) -> Path:
        return self.state / "state.sqlite"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def models_cache(self) -> Path:
        """Downloaded model weights: big, and made again at will."""
        return self.cache / "homarus" / "models"

    def agent_dir(self, agent: str) -> Path:
        """Credentials and model lists of one agent."""
        return self._agent(agent) / "agent"

    @property
    def post(self) -> Path:
        """Where a gateway says that it serves this state, for as long as it does."""
        return self.state / "gateway.json"

    def sessions_dir(self, agent: str) -> Path:
        """The session list and transcripts of one agent."""
        return self._agent(agent) / "sessions"

    def default_workspace(self, agent: str, is_default: bool) -> Path:  # noqa: FBT001 - a fact about `agent`
        """The workspace of an agent whose config names none.

        A profile's default workspace stands beside the unprofiled one, in `~/.openclaw`. A state
        directory chosen by hand keeps its workspace inside, so that it can be moved as a whole.
        """
        if not is_default:
            return self.state / f"workspace-{_safe_agent_id(agent)}"
        if self.profile and self.state == self.home / f".openclaw-{self.profile}":
            return self.home / ".openclaw" / f"workspace-{self.profile}"
        return self.state / "workspace"

    def _agent(self, agent: str) -> Path:
        return self.state / "agents" / _safe_agent_id(agent)


def expand(path: str, home: Path) -> Path:
    """`~` as `home`, relative as of the current directory; always absolute."""
    if path == "~" or path.startswith("~/"):
        return home / path[2:]
    return Path(path).absolute()


def shorten(path: Path, home: Path) -> str:
    """The path as a person would write it, with `~`."""
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


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
    """Agent ids become directory names: nothing may climb out of the state directory."""
    if not _AGENT_ID.fullmatch(agent):
        raise UserError(
            f"{agent!r} is not an agent id", fix="use letters, digits, - and _, at most 64"
        )
    return agent
