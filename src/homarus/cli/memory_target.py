"""Resolve which memory a command means: `--agent`, `--workspace`, `--state`, or the config.

`--state` is a state directory with its own config or none. `--workspace` is any folder of notes. If
only that is given, its index is next to the agent's own, which it must not replace.
"""

import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from homarus.cli import completion_values
from homarus.config.paths import Paths, expand, shorten
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import make_private_dir

if TYPE_CHECKING:
    from homarus.memory.agent_memory import AgentMemory
    from homarus.memory.spec import MemorySpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """The `--agent`, `--workspace` and `--state` options of a command."""

    agent: str | None = None
    workspace: str | None = None
    state: str | None = None


def memory_target_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--agent`, `--workspace` and `--state`; the command gets them as `target`."""

    @wraps(command)
    def with_options(
        *args: Any, agent: str | None, workspace: str | None, state: str | None, **named: Any
    ) -> T:
        return command(*args, target=MemoryTarget(agent, workspace, state), **named)

    wrapped: Callable[..., T] = with_options
    for name, value, default, complete, help_text in (
        (
            "--state",
            "DIR",
            "~/.openclaw",
            completion_values.directories,
            "Use this state directory, its config and its index.",
        ),
        (
            "--workspace",
            "DIR",
            "the agent's workspace",
            completion_values.directories,
            "Use the notes of this folder.",
        ),
        (
            "--agent",
            "ID",
            "the default agent; all for status",
            completion_values.agents,
            "The agent whose memory is used.",
        ),
    ):
        wrapped = click.option(
            name, metavar=value, show_default=default, shell_complete=complete, help=help_text
        )(wrapped)
    return wrapped


def resolve_memory(target: MemoryTarget, *, make: bool = False) -> "MemorySpec":
    """Return the memory of the options; `make` creates a missing workspace."""
    (spec,) = _resolve_specs(target, every=False)
    if make:
        with suppress(OSError):  # what is there instead is reported below
            make_private_dir(spec.workspace)
    if not spec.workspace.is_dir():
        shown = shorten(spec.workspace, spec.home)
        raise UserError(
            f"no workspace at {shown}", fix="homarus setup makes it, or name one: --workspace"
        )
    return spec


def resolve_memories(target: MemoryTarget) -> "list[MemorySpec]":
    """Return the memories of every agent, or of the given one. Workspaces may be missing."""
    return _resolve_specs(target, every=target.agent is None and target.workspace is None)


def without_timeout(spec: "MemorySpec") -> "MemorySpec":
    """Return the spec without the search timeout, which is meant for sessions."""
    limits = spec.settings.qmd.limits.model_copy(update={"timeout_ms": 0})
    qmd = spec.settings.qmd.model_copy(update={"limits": limits})
    return replace(spec, settings=spec.settings.model_copy(update={"qmd": qmd}))


@asynccontextmanager
async def open_memory(spec: "MemorySpec") -> "AsyncIterator[AgentMemory]":
    """Open a memory for the duration of a block."""
    from homarus.memory.agent_memory import AgentMemory

    memory = AgentMemory(without_timeout(spec))
    try:
        yield memory
    finally:
        await memory.close()


def _resolve_specs(target: MemoryTarget, *, every: bool) -> "list[MemorySpec]":
    """Resolve the specs by the config. Unset variables are allowed: notes need no secrets."""
    from homarus.config.agent_settings import agent_ids, default_agent_id
    from homarus.config.config_files import read_text
    from homarus.config.load import examine_config
    from homarus.memory.spec import resolve_memory_spec

    paths = _paths(target)
    found = examine_config(paths, os.environ, read_text(paths.config), need_variables=False)
    if found.errors or found.config is None:
        raise found.errors[0]
    named = agent_ids(found.config) if every else [target.agent or default_agent_id(found.config)]
    specs = [resolve_memory_spec(found.config, paths, found.env, agent) for agent in named]
    return (
        specs if target.workspace is None else [_for_workspace(target, specs[0], target.workspace)]
    )


def _paths(target: MemoryTarget) -> Paths:
    if target.state is None:
        paths = Paths.find(os.environ)
        if not paths.gateway_file.exists():  # the rest is slow to import
            return paths
        from homarus.cli.gateway_options import with_gateway_config

        return with_gateway_config(paths)
    env = {name: text for name, text in os.environ.items() if name != "OPENCLAW_CONFIG_PATH"}
    if not target.state.strip():
        raise UserError("--state names no folder", fix="write --state DIR")
    paths = Paths.find({**env, "OPENCLAW_STATE_DIR": target.state})
    _check_state(paths)
    return paths


def _check_state(paths: Paths) -> None:
    """Check that the state directory can be written. Raises UserError."""
    existing = next(path for path in (paths.state, *paths.state.parents) if path.exists())
    shown, fix = shorten(existing, paths.home), "choose another folder with --state"
    if not existing.is_dir():
        raise UserError(f"{shown} is not a folder", fix=fix)
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        raise UserError(f"{shown} cannot be written to", fix=fix)


def _for_workspace(target: MemoryTarget, spec: "MemorySpec", workspace: str) -> "MemorySpec":
    """Return the spec of a given folder, with an index of its own next to the agent's.

    The agent's other sources (transcripts, extra paths, another backend) are not in it; a state
    that was given as well belongs to it alone.
    """
    folder = expand(workspace, spec.home)
    if not workspace.strip() or not folder.is_dir():
        help_text = f"no workspace at {shorten(folder, spec.home)}"
        raise UserError(help_text, fix="name a folder that is there")
    if target.state is not None or folder.resolve() == spec.workspace.resolve():
        return replace(spec, workspace=folder)
    digest = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:8]
    return replace(
        spec,
        workspace=folder,
        database=spec.database.with_name(f"{spec.agent}@{digest}.homarus.sqlite"),
        search=spec.search.model_copy(update={"sources": ("memory",), "extra_paths": ()}),
        settings=spec.settings.model_copy(update={"backend": "builtin"}),
    )
