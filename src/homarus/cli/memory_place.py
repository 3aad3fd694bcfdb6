"""Which memory a command means: `--agent`, `--workspace`, `--state`, or what the config says.

`--state` is a state directory of its own, with its own config or none. `--workspace` is any folder
of notes. Where only that is given, its index stands beside the agent's own, which it must not undo.
"""

import hashlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from homarus.config.paths import Paths, expand, shorten
from homarus.core.errors import UserError
from homarus.core.value import dataclass

if TYPE_CHECKING:
    from homarus.config.schema import Config
    from homarus.memory.keeper import AgentMemory
    from homarus.memory.place import Place

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Which:
    """What was said on the command line about whose memory is meant."""

    agent: str | None = None
    workspace: str | None = None
    state: str | None = None


def which_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--agent`, `--workspace` and `--state`; the command gets them as `which`."""

    @wraps(command)
    def choosing(
        *args: Any, agent: str | None, workspace: str | None, state: str | None, **named: Any
    ) -> T:
        return command(*args, which=Which(agent, workspace, state), **named)

    made: Callable[..., T] = choosing
    for name, shown, told in (
        ("--state", "DIR", "Keep the index there; its config, if it has one, holds."),
        ("--workspace", "DIR", "The notes of this folder instead of the agent's own."),
        ("--agent", "ID", "This agent's memory."),
    ):
        made = click.option(name, metavar=shown, help=told)(made)
    return made


def find_memory(which: Which) -> "Place":
    """The memory that is meant; its workspace is there."""
    config, paths, env = _config(which)
    return _found(which, config, paths, env, which.agent)


def find_memories(which: Which) -> "list[Place]":
    """The memories of every agent, unless one is named. Workspaces may be missing."""
    from homarus.config.resolve import agents

    config, paths, env = _config(which)
    if which.agent is not None or which.workspace is not None:
        return [_found(which, config, paths, env, which.agent, must_be=False)]
    return [_found(which, config, paths, env, agent, must_be=False) for agent in agents(config)]


def patient(place: "Place") -> "Place":
    """The same for a person who waits: the time that a conversation has is not theirs."""
    limits = place.settings.qmd.limits.model_copy(update={"timeout_ms": 0})
    qmd = place.settings.qmd.model_copy(update={"limits": limits})
    return replace(place, settings=place.settings.model_copy(update={"qmd": qmd}))


@asynccontextmanager
async def open_memory(place: "Place") -> "AsyncIterator[AgentMemory]":
    """The memory, open for as long as the block lasts."""
    from homarus.memory.keeper import AgentMemory

    memory = AgentMemory(patient(place))
    try:
        yield memory
    finally:
        await memory.close()


def _config(which: Which) -> "tuple[Config, Paths, Mapping[str, str]]":
    """What holds here. A variable that is not set is no mistake: notes need no secrets."""
    from homarus.config.load import examine
    from homarus.config.source import read_text

    paths = _paths(which)
    found = examine(paths, os.environ, read_text(paths.config), need_variables=False)
    if found.errors or found.config is None:
        raise found.errors[0]
    return found.config, paths, found.env


def _paths(which: Which) -> Paths:
    if which.state is None:
        paths = Paths.find(os.environ)
        if not paths.post.exists():  # what follows is slow to load
            return paths
        from homarus.cli.reach import find_own

        return find_own(paths)
    env = {name: text for name, text in os.environ.items() if name != "OPENCLAW_CONFIG_PATH"}
    if not which.state.strip():
        raise UserError("--state names no folder", fix="write --state DIR")
    paths = Paths.find({**env, "OPENCLAW_STATE_DIR": which.state})
    _check_state(paths)
    return paths


def _check_state(paths: Paths) -> None:
    """Say it clearly when nothing can be kept there."""
    there = next(path for path in (paths.state, *paths.state.parents) if path.exists())
    shown, fix = shorten(there, paths.home), "choose another folder with --state"
    if not there.is_dir():
        raise UserError(f"{shown} is not a folder", fix=fix)
    if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        raise UserError(f"{shown} cannot be written to", fix=fix)


def _found(
    which: Which,
    config: "Config",
    paths: Paths,
    env: Mapping[str, str],
    agent: str | None,
    *,
    must_be: bool = True,
) -> "Place":
    from homarus.config.resolve import default_agent
    from homarus.memory.place import find_place

    place = find_place(config, paths, env, agent or default_agent(config))
    if which.workspace is None:
        if must_be and not place.workspace.is_dir():
            shown = shorten(place.workspace, paths.home)
            raise UserError(
                f"no workspace at {shown}", fix="homarus setup makes it, or name one: --workspace"
            )
        return place
    given = expand(which.workspace, paths.home)
    if not which.workspace.strip() or not given.is_dir():
        told = f"no workspace at {shorten(given, paths.home)}"
        raise UserError(told, fix="name a folder that is there")
    return replace(place, workspace=given, database=_database(which, place, given))


def _database(which: Which, place: "Place", workspace: Path) -> Path:
    """The index for a workspace that was named. The agent's own is not overwritten by another."""
    if which.state is not None or workspace.resolve() == place.workspace.resolve():
        return place.database
    known_by = hashlib.sha256(os.fsencode(workspace.resolve())).hexdigest()[:8]
    return place.database.with_name(f"{place.agent}@{known_by}.sqlite")
