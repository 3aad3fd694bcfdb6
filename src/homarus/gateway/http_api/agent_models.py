"""The names that stand for agents in the field `model`: `openclaw`, `openclaw:main`.

Clients of OpenAI's protocol choose a model; here they choose the agent that answers, whose own
settings say which model it uses. `openclaw/main` and `agent:main` are other spellings.
"""

from collections.abc import Iterator
from typing import Final

from homarus.config.agent_settings import agent_ids, default_agent_id
from homarus.config.schema import Config
from homarus.core.session_keys import normalize_agent_id
from homarus.core.text import closest_names, one_line
from homarus.gateway.http_api.api_error import ApiError

DEFAULT_MODEL: Final = "openclaw"
_PREFIXES: Final = ("openclaw:", "openclaw/", "agent:")
_DEFAULT_AGENTS: Final = frozenset({"", "default"})


def model_names(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the name of every agent as a model, with the agent's id; the default one first."""
    yield DEFAULT_MODEL, default_agent_id(config)
    for agent in agent_ids(config):
        yield f"{DEFAULT_MODEL}:{agent}", agent


def find_agent(config: Config, model: str) -> str | None:
    """Return the agent that a model's name stands for; None for the name of anything else.

    Raises ApiError (404) for one in our form whose agent does not exist.
    """
    name = model.strip().lower()
    if name == DEFAULT_MODEL:
        return default_agent_id(config)
    prefix = next((each for each in _PREFIXES if name.startswith(each)), "")
    if not prefix:
        return None
    rest = name.removeprefix(prefix)
    if prefix != "agent:" and rest in _DEFAULT_AGENTS:
        return default_agent_id(config)
    return check_agent(config, rest, param="model")


def get_agent(config: Config, model: str) -> str:
    """Return the agent that a model's name stands for; raises ApiError (404) without one."""
    found = find_agent(config, model)
    if found is None:
        names = [name for name, _ in model_names(config)]
        raise _unknown_model(model, names)
    return found


def check_agent(config: Config, name: str, *, param: str) -> str:
    """Return the id of a configured agent; raises ApiError (404)."""
    known = agent_ids(config)
    agent = normalize_agent_id(name)
    if not name.strip() or agent not in known or agent != name.strip().lower():
        close = closest_names(name.lower(), known)
        raise ApiError(
            404,
            f"there is no agent {one_line(name, 60)!r}",
            reason="model_not_found",
            param=param,
            fix=f"did you mean {' or '.join(close)}?" if close else "GET /v1/models lists them",
        )
    return agent


def _unknown_model(model: str, names: list[str]) -> ApiError:
    return ApiError(
        404,
        f"there is no model {one_line(model, 60)!r}",
        reason="model_not_found",
        param="model",
        fix=f"use {', '.join(names[:5])}",
    )
