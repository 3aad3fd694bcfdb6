"""Compose a session's system prompt: read the workspace files, collect the facts.

    prompt = composer.compose(agent, key, model, tools)

With hooks that may replace files:

    files = await composer.hooked_files(agent, key, hooks)
    prompt = composer.compose(agent, key, model, tools, files=files)
"""

import os
import platform
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from pathlib import Path
from typing import Final

from homarus import __version__
from homarus.agent.agent import Agent
from homarus.agent.prompt.assembly import (
    Prompt,
    file_char_limits,
    fitting_tools,
    make_prompt,
    make_report,
    mode_for,
    profile_of,
)
from homarus.agent.prompt.chat_context import NO_CHAT, ChatContext
from homarus.agent.prompt.facts import GroupInfo, PromptFacts, SkillBlock
from homarus.agent.prompt.identity_file import FILE, parse_identity
from homarus.agent.prompt.injection import (
    RITUAL,
    SessionKind,
    WorkspaceFile,
    file_names_for,
    inject,
    is_private,
    session_kind,
    texts_of,
    with_texts,
)
from homarus.agent.prompt.repo_root import find_repo_root
from homarus.agent.prompt.report import PromptReport, ReportContext, equals_ignoring_time
from homarus.agent.prompt.workspace_files import WorkspaceFileReader
from homarus.agent.reply.reply_parser import uses_final_tag
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.installation import find_docs
from homarus.core.message import Json
from homarus.core.session_keys import parse_agent_key
from homarus.plugins.hook_runner import Hooks
from homarus.plugins.values import HookContext
from homarus.providers.base import ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.sessions.levels import reasoning_level, think_level

_MAX_CACHED = 256
_NO_ENTRY: Mapping[str, Json] = {}
_SHELL: Final = "/bin/sh"  # of the `exec` tool
_COMMIT: Final = "The folder is a git repository: commit what you change."
_WHOLE_MACHINE: Final = "File tools take absolute paths outside it too."
_READ_ONLY: Final = "From this conversation the files under Project Context are read-only."


@dataclass(slots=True)
class _ComposedPrompt:
    prompt: Prompt
    limits: tuple[int, int]
    report: PromptReport | None = None
    sizes: Mapping[str, Json] | None = None  # of the report, as session entries have them


_inject = lru_cache(8)(inject)  # most turns find the files unchanged


class PromptComposer:
    """Composes prompts, and caches them by session and by kind of session."""

    def __init__(self) -> None:
        self._reader = WorkspaceFileReader()
        self._by_session: dict[str, _ComposedPrompt] = {}  # by session
        self._latest: dict[tuple[str, SessionKind], _ComposedPrompt] = {}
        self._host = platform.node()
        self._system = f"{platform.system()} {platform.release()} ({platform.machine()})"
        self._python = platform.python_version()
        self._shell = Path(os.path.realpath(_SHELL)).name
        self._docs = str(find_docs() or "")
        self._cwd = _current_dir()

    def files(self, agent: Agent, key: str) -> tuple[WorkspaceFile, ...]:
        """Return the workspace files for a session as they are on disk."""
        return self._reader.load(agent.workspace, file_names_for(session_kind(key)))

    async def hooked_files(self, agent: Agent, key: str, hooks: Hooks) -> tuple[WorkspaceFile, ...]:
        """Return the workspace files for a session after the `agent_bootstrap` hook."""
        files = self.files(agent, key)
        if hooks.is_empty:
            return files
        where = HookContext(agent.id, key, "", str(agent.workspace))
        return with_texts(files, await hooks.agent_bootstrap(where, texts_of(files)))

    def compose(
        self,
        agent: Agent,
        key: str,
        model: ModelInfo,
        tools: Sequence[ToolSpec],
        *,
        files: Sequence[WorkspaceFile] | None = None,
        entry: Mapping[str, Json] = _NO_ENTRY,
        extra: str = "",
        chat: ChatContext = NO_CHAT,
        skills: tuple[SkillBlock, ...] = (),
    ) -> Prompt:
        """Return a session's prompt. `entry` is the session's entry, `extra` the caller's text."""
        found = self.files(agent, key) if files is None else files
        kind = session_kind(key)
        profile = profile_of(model.window, calls_tools=model.calls_tools)
        limits = file_char_limits(
            profile, agent.max_file_chars, agent.max_total_chars, model.window
        )
        given = tools if model.calls_tools else ()
        names = {spec.name for spec in given}
        writes, surface, mode = "message" in names, chat.surface, mode_for(kind)
        repo = find_repo_root(agent.repo_root, agent.workspace, self._cwd)
        facts = PromptFacts(
            name=_name(agent, found),
            agent=agent.id,
            workspace=str(agent.workspace),
            persona=agent.persona,
            mode=mode,
            tools=fitting_tools(given, profile, model.window),
            files=_inject(tuple(found), *limits),
            skills=skills,
            citations=chat.citations,
            aliases=agent.aliases,
            notes=_notes(agent, kind, found, names, chat),
            docs=self._docs if _can_read_docs(agent, names, chat) else "",
            sandbox=chat.sandbox,
            owners=surface.owners,
            timezone=agent.timezone,
            heartbeat=agent.has_heartbeat,
            reasoning_tags=uses_final_tag(model.provider),
            reply_tags=writes,
            reactions=chat.reactions if writes else "",
            group=_group(key, entry) if kind == "group" else None,
            extra="\n\n".join(part for part in (chat.prompt_text, extra) if part),
            buttons=surface.buttons,
            hints=surface.hints,
            model=model.ref,
            default_model=dict(agent.aliases).get(agent.model or "", agent.model or ""),
            thinking=_thinking(agent, model, entry),
            reasoning=_reasoning(entry) if mode == "full" else "",
            channel=surface.channel,
            capabilities=surface.capabilities,
            host=self._host,
            system=self._system,
            python=self._python,
            version=__version__,
            shell=self._shell,
            repo=str(repo or ""),
        )
        for composed in (self._by_session.get(key), self._latest.get((agent.id, kind))):
            if composed and composed.prompt.profile == profile and composed.prompt.facts == facts:
                return self._keep(key, composed)
        composed = self._latest[agent.id, kind] = _ComposedPrompt(
            make_prompt(facts, profile), limits
        )
        return self._keep(key, composed)

    def _keep(self, key: str, composed: _ComposedPrompt) -> Prompt:
        """Cache a session's prompt; most sessions of one kind share theirs."""
        if len(self._by_session) >= _MAX_CACHED and key not in self._by_session:
            self._by_session.clear()
        self._by_session[key] = composed
        return composed.prompt

    def report(self, context: ReportContext) -> PromptReport:
        """Return the report of the prompt that was last composed for a session."""
        composed = self._by_session[context.session_key]
        if composed.report is None:
            composed.report = make_report(composed.prompt, context, *composed.limits)
        return replace(composed.report, context=context)

    def report_changes(self, context: ReportContext, data: Mapping[str, Json]) -> dict[str, Json]:
        """Return the change of a session's entry: the report of its prompt, if it differs."""
        composed = self._by_session.get(context.session_key)
        if composed is None:
            return {}
        if composed.sizes is None:
            composed.sizes = self.report(context).sizes()
        entry = {**context.entry(), **composed.sizes}
        same = equals_ignoring_time(entry, data.get("systemPromptReport"))
        return {} if same else {"systemPromptReport": entry}


def _name(agent: Agent, files: Sequence[WorkspaceFile]) -> str:
    """Return the agent's name: from the config, else from IDENTITY.md."""
    if agent.is_named:
        return agent.name
    own = next((file.text for file in files if file.name == FILE and not file.missing), "")
    return parse_identity(own).name or agent.name


def _notes(
    agent: Agent,
    kind: SessionKind,
    files: Sequence[WorkspaceFile],
    tools: Set[str],
    chat: ChatContext,
) -> tuple[str, ...]:
    """Return what to know of the workspace besides its path.

    The reminder to commit is for the first conversations, which change most of the files.
    """
    if chat.sandbox and chat.sandbox.access != "rw":
        return ()  # its folder is another one
    is_new = any(file.name == RITUAL and not file.missing for file in files)
    should_commit = is_new and "exec" in tools and os.path.lexists(f"{agent.workspace}/.git")
    is_read_only = not is_private(kind) and not chat.access.can_write_prompts
    is_open = agent.file_scope.protected is not None and chat.access.is_owner and not chat.sandbox
    notes = (
        _COMMIT if should_commit else "",
        _READ_ONLY if is_read_only and tools & {"write", "edit"} else "",
        _WHOLE_MACHINE if is_open and tools & {"read", "write"} else "",
    )
    return tuple(note for note in notes if note)


def _can_read_docs(agent: Agent, tools: Set[str], chat: ChatContext) -> bool:
    """Return whether the agent can read the program's documentation, by a tool or a command."""
    if agent.docs and tools & {"read", "exec"}:
        return True
    return "exec" in tools and chat.sandbox is None


def _thinking(agent: Agent, model: ModelInfo, entry: Mapping[str, Json]) -> str:
    """Return the session's thinking level. One message may ask for another, which is not here."""
    stored = entry.get("thinkingLevel")
    chosen = (stored if isinstance(stored, str) else None) or agent.thinking
    return think_level(chosen) or model.default_thinking


def _reasoning(entry: Mapping[str, Json]) -> str:
    stored = entry.get("reasoningLevel")
    return (reasoning_level(stored) if isinstance(stored, str) else None) or "off"


def _current_dir() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was deleted
        return None


def _group(key: str, entry: Mapping[str, Json]) -> GroupInfo:
    parsed = parse_agent_key(key)
    parts = parsed.rest.split(":") if parsed else []
    channel = parts[0] if len(parts) >= 3 else ""
    return GroupInfo(channel, always=entry.get("groupActivation") == "always")
